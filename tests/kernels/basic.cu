// Small kernels that tests launch. The grid may be any; `.ci/ptx` makes basic.ptx of this file.

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

__device__ u64 first() { return (u64)blockIdx.x * blockDim.x + threadIdx.x; }

__device__ u64 stride() { return (u64)gridDim.x * blockDim.x; }

extern "C" __global__ void fill_u8(u8 *dst, u64 len, u32 value)
{
    for (u64 place = first(); place < len; place += stride()) dst[place] = (u8)value;
}

extern "C" __global__ void copy_u8(u8 *dst, const u8 *src, u64 len)
{
    for (u64 place = first(); place < len; place += stride()) dst[place] = src[place];
}

// In place, wrapping.
extern "C" __global__ void add_u8(u8 *dst, u64 len, u32 value)
{
    for (u64 place = first(); place < len; place += stride()) dst[place] = (u8)(dst[place] + value);
}

// Adds to `errors` how many bytes are not those of the batch's pattern.
extern "C" __global__ void count_wrong(const u8 *src, u64 len, u64 batch, u32 *errors)
{
    u32 wrong = 0;
    for (u64 place = first(); place < len; place += stride()) {
        wrong += src[place] != (u8)(batch * 31 + place * 7 + place / 251);
    }
    if (wrong != 0) atomicAdd(errors, wrong);
}

// dst[0] becomes the sum. The first block does it all, in an order that depends on its size alone.
extern "C" __global__ void sum_f32(float *dst, const float *src, u64 len)
{
    __shared__ float parts[1024];
    if (blockIdx.x != 0) return;
    float part = 0.0f;
    for (u64 place = threadIdx.x; place < len; place += blockDim.x) part += src[place];
    parts[threadIdx.x] = part;
    __syncthreads();
    if (threadIdx.x != 0) return;
    float sum = 0.0f;
    for (u32 thread = 0; thread < blockDim.x; thread++) sum += parts[thread];
    dst[0] = sum;
}

__device__ u64 now()
{
    u64 nanoseconds;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(nanoseconds));
    return nanoseconds;
}

// Lasts so long.
extern "C" __global__ void spin(u64 nanoseconds)
{
    if (first() != 0) return;
    u64 begun = now();
    while (now() - begun < nanoseconds) {}
}

// Writes a byte, wherever that is.
extern "C" __global__ void poke(u64 address, u32 value)
{
    if (first() == 0) *(volatile u8 *)address = (u8)value;
}
