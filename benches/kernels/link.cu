// The GPU's part of benches/link: a loop that crops are held against, and work. `.ci/ptx` makes link.ptx of this file.

// Copies cubes of `edge` out of a cube of `line` to `dst`, one behind the other; `edge` is a multiple of 4. `src` may be
// page-locked memory of the host, which is read by 16 bytes where such begin. A cube begins `corners[n]` elements behind
// `src`. A power of two of lanes, which read one more than they write, goes along a row; the grid may be any, of whole warps.
extern "C" __global__ void gather_cubes(float4 *__restrict__ dst, const float *__restrict__ src,
                                        const unsigned int *__restrict__ corners, unsigned int cubes, unsigned int edge,
                                        unsigned int line)
{
    unsigned int units = edge / 4, lanes = 2;
    while (lanes <= units && lanes < 32) lanes *= 2;
    unsigned int lane = threadIdx.x % lanes, groups = gridDim.x * blockDim.x / lanes, rows = cubes * edge * edge;
    unsigned int own = (blockIdx.x * blockDim.x + threadIdx.x) / lanes;
    for (unsigned int row = own; row - threadIdx.x % 32 / lanes < rows; row += groups) {
        unsigned int y = row % edge, z = row / edge % edge;
        const float *from = row < rows ? src + corners[row / (edge * edge)] + ((unsigned long long)z * line + y) * line : src;
        unsigned int shift = (unsigned long long)from % 16 / 4;
        const float4 *whole = (const float4 *)(from - shift);
        for (unsigned int first = 0; first < units; first += lanes - 1) {
            unsigned int unit = first + lane;
            float4 a = {}, b;
            if (row < rows && unit < units + (shift > 0)) a = whole[unit];
            b.x = __shfl_down_sync(~0u, a.x, 1), b.y = __shfl_down_sync(~0u, a.y, 1), b.z = __shfl_down_sync(~0u, a.z, 1);
            float4 to = shift == 0 ? a : shift == 1 ? make_float4(a.y, a.z, a.w, b.x)
                      : shift == 2 ? make_float4(a.z, a.w, b.x, b.y) : make_float4(a.w, b.x, b.y, b.z);
            if (row < rows && lane + 1 < lanes && unit < units) dst[(unsigned long long)row * units + unit] = to;
        }
    }
}

// Arithmetic alone: as many rounds as are asked for, by every thread of the grid, each on its element of `values`.
extern "C" __global__ void burn(float *values, unsigned int rounds)
{
    unsigned int place = blockIdx.x * blockDim.x + threadIdx.x;
    float value = values[place];
    for (unsigned int round = 0; round < rounds; round++) value = value * 1.0001f + 0.5f;
    values[place] = value;
}

// `c` becomes the product of the transposed `a` and `b`, all square with `size` rows, with `depth` rows of each summed,
// from the top again where there are no more, and the first byte of `batch` added. A block of 256 threads makes a tile of
// 64 by 64, a thread 4 by 4 of it; `size` is a multiple of 64, `depth` of 16.
extern "C" __global__ void matmul(float *c, const float *a, const float *b, const unsigned char *batch, unsigned int size,
                                  unsigned int depth)
{
    __shared__ float left[16][64], right[16][64];
    unsigned int first_row = blockIdx.y * 64, first_column = blockIdx.x * 64;
    unsigned int row = threadIdx.x / 16 * 4, column = threadIdx.x % 16 * 4;
    float sums[4][4] = {};
    for (unsigned int first = 0; first < depth; first += 16) {
        for (unsigned int place = threadIdx.x; place < 16 * 64; place += 256) {
            unsigned long long from = (unsigned long long)((first + place / 64) % size) * size + place % 64;
            left[place / 64][place % 64] = a[from + first_row];
            right[place / 64][place % 64] = b[from + first_column];
        }
        __syncthreads();
#pragma unroll
        for (unsigned int k = 0; k < 16; k++)
#pragma unroll
            for (unsigned int i = 0; i < 4; i++)
#pragma unroll
                for (unsigned int j = 0; j < 4; j++) sums[i][j] += left[k][row + i] * right[k][column + j];
        __syncthreads(); // else the next tiles come over these
    }
    for (unsigned int i = 0; i < 4; i++)
        for (unsigned int j = 0; j < 4; j++)
            c[(unsigned long long)(first_row + row + i) * size + first_column + column + j] = sums[i][j] + batch[0];
}
