// The work of gpu.rs: a forward pass, a step of gradient descent, and a count of right answers.
//
// The grid may be any: blocks go over the rows and threads over the units, or threads over the parameters. No sum
// depends on the order of threads, so that the same batches give the same weights. Labels are below CLASSES.
// `.ci/ptx` makes perceptron.ptx of this file.

constexpr unsigned int PIXELS = 64, HIDDEN = 96, CLASSES = 10;

constexpr float BRIGHTEST = 16.0f;
constexpr float SMALLEST = 1.17549435e-38f; // f32::MIN_POSITIVE: the logarithm of no chance at all is not infinite

// All that is learnt: 7210 f32, matrices by rows.
struct Perceptron {
    float hidden[PIXELS][HIDDEN];
    float hidden_biases[HIDDEN];
    float output[HIDDEN][CLASSES];
    float output_biases[CLASSES];
};

// What the step needs to know of a row's way through both layers: 203 f32.
struct Pass {
    float active[HIDDEN];
    float below[HIDDEN];     // gradient at the hidden layer, before its relu
    float gradient[CLASSES]; // gradient at the output layer, before its softmax
    float loss;
};

constexpr unsigned int PARAMETERS = sizeof(Perceptron) / sizeof(float);

static_assert(PARAMETERS == 7210, "as gpu.rs has it");
static_assert(sizeof(Pass) == 203 * sizeof(float), "as gpu.rs has it");

// Both layers for one row, by one block. Results may be read by all its threads.
__device__ void layers(const Perceptron &model, const float *pixels, float *active, float *scores)
{
    for (unsigned int unit = threadIdx.x; unit < HIDDEN; unit += blockDim.x) {
        float sum = model.hidden_biases[unit];
        for (unsigned int i = 0; i < PIXELS; i++) sum += pixels[i] / BRIGHTEST * model.hidden[i][unit];
        active[unit] = fmaxf(sum, 0.0f);
    }
    __syncthreads();
    for (unsigned int unit = threadIdx.x; unit < CLASSES; unit += blockDim.x) {
        float sum = model.output_biases[unit];
        for (unsigned int i = 0; i < HIDDEN; i++) sum += active[i] * model.output[i][unit];
        scores[unit] = sum;
    }
    __syncthreads();
}

// The softmax of one class.
__device__ float chance(const float *scores, unsigned int unit)
{
    float largest = scores[0], sum = 0.0f;
    for (unsigned int i = 1; i < CLASSES; i++) largest = fmaxf(largest, scores[i]);
    for (unsigned int i = 0; i < CLASSES; i++) sum += expf(scores[i] - largest);
    return expf(scores[unit] - largest) / sum;
}

// The way of each row, there and back. The model stays as it is.
extern "C" __global__ void forward(const Perceptron *model, const float (*pixels)[PIXELS],
                                   const unsigned char *labels, unsigned int rows, Pass *passes)
{
    __shared__ float active[HIDDEN], scores[CLASSES], gradient[CLASSES];
    for (unsigned int row = blockIdx.x; row < rows; row += gridDim.x) {
        Pass &pass = passes[row];
        layers(*model, pixels[row], active, scores);
        for (unsigned int unit = threadIdx.x; unit < CLASSES; unit += blockDim.x) {
            bool is_label = unit == labels[row];
            float guess = chance(scores, unit);
            gradient[unit] = (guess - (is_label ? 1.0f : 0.0f)) / rows;
            pass.gradient[unit] = gradient[unit];
            if (is_label) pass.loss = -logf(fmaxf(guess, SMALLEST));
        }
        __syncthreads();
        for (unsigned int unit = threadIdx.x; unit < HIDDEN; unit += blockDim.x) {
            float sum = 0.0f;
            for (unsigned int i = 0; i < CLASSES; i++) sum += gradient[i] * model->output[unit][i];
            pass.active[unit] = active[unit];
            pass.below[unit] = active[unit] > 0.0f ? sum : 0.0f;
        }
        __syncthreads(); // else the next row's activations come over this one's
    }
}

// What a row adds to the gradient of the parameter at that place of the model.
__device__ float slope(const float *pixels, const Pass &pass, unsigned int place)
{
    if (place < PIXELS * HIDDEN) return pixels[place / HIDDEN] / BRIGHTEST * pass.below[place % HIDDEN];
    place -= PIXELS * HIDDEN;
    if (place < HIDDEN) return pass.below[place];
    place -= HIDDEN;
    if (place < HIDDEN * CLASSES) return pass.active[place / CLASSES] * pass.gradient[place % CLASSES];
    return pass.gradient[place - HIDDEN * CLASSES];
}

// A step of gradient descent after `forward`; loss[0] becomes the mean cross-entropy.
extern "C" __global__ void update(Perceptron *model, const float (*pixels)[PIXELS], const Pass *passes,
                                  unsigned int rows, float rate, float *loss)
{
    unsigned int first = blockIdx.x * blockDim.x + threadIdx.x, stride = gridDim.x * blockDim.x;
    float *parameters = (float *)model;
    for (unsigned int place = first; place < PARAMETERS; place += stride) {
        float gradient = 0.0f;
        for (unsigned int row = 0; row < rows; row++) gradient += slope(pixels[row], passes[row], place);
        parameters[place] -= rate * gradient;
    }
    if (first != 0) return;
    float sum = 0.0f;
    for (unsigned int row = 0; row < rows; row++) sum += passes[row].loss;
    loss[0] = sum / rows;
}

// Adds to right[0] how many rows the model classes as they are labelled. Of equal scores the last class counts.
extern "C" __global__ void count_right(const Perceptron *model, const float (*pixels)[PIXELS],
                                       const unsigned char *labels, unsigned int rows, unsigned int *right)
{
    __shared__ float active[HIDDEN], scores[CLASSES];
    for (unsigned int row = blockIdx.x; row < rows; row += gridDim.x) {
        layers(*model, pixels[row], active, scores);
        if (threadIdx.x == 0) {
            unsigned int best = 0;
            for (unsigned int unit = 1; unit < CLASSES; unit++) {
                if (scores[unit] >= scores[best]) best = unit;
            }
            if (best == labels[row]) atomicAdd(right, 1u);
        }
        __syncthreads(); // else the next row's scores come over this one's
    }
}
