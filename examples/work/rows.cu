// The work of gpu.rs. `.ci/ptx` makes rows.ptx of this file.

// dst[row] becomes the sum of the row, by one block, in an order that depends on the block's size alone. The grid may be
// any.
extern "C" __global__ void sum_rows(float *dst, const float *src, unsigned int rows, unsigned int columns)
{
    __shared__ float parts[1024];
    for (unsigned int row = blockIdx.x; row < rows; row += gridDim.x) {
        const float *values = src + (unsigned long long)row * columns;
        float part = 0.0f;
        for (unsigned int place = threadIdx.x; place < columns; place += blockDim.x) part += values[place];
        parts[threadIdx.x] = part;
        __syncthreads();
        if (threadIdx.x == 0) {
            float sum = 0.0f;
            for (unsigned int thread = 0; thread < blockDim.x; thread++) sum += parts[thread];
            dst[row] = sum;
        }
        __syncthreads(); // else the next row's parts come over this one's
    }
}
