// Rows of page-locked memory of the host, which the GPU reads by itself. `.ci/ptx` makes fetch.ptx of this file, fetch.rs
// launches it.

typedef unsigned int u32;
typedef unsigned long long u64;

// Pieces of a launch at most: an argument has 4 KiB.
#define MOST 480
// Reads that a thread has on their way.
#define AT_ONCE 8

// Pieces of one shape, anywhere. A unit is what one read brings.
struct Pieces {
    u64 pitch, plane;        // bytes from a row to the next, and from a plane to the next
    u32 width, rows, planes; // units of a row, rows of a plane, planes of a piece
    u32 count;               // units of all pieces, less than 2^31
    u64 src[MOST];
};

// Writes the pieces to `dst`, one behind the other. The grid may be any.
template <typename Unit> __device__ void fetch(Unit *dst, const Pieces &pieces) {
    const u32 step = gridDim.x * blockDim.x;
#pragma unroll 1
    for (u32 first = blockIdx.x * blockDim.x + threadIdx.x; first < pieces.count; first += step * AT_ONCE) {
        Unit units[AT_ONCE];
        // All reads are on their way before the first is there.
#pragma unroll
        for (u32 nth = 0; nth < AT_ONCE; nth++) {
            const u32 place = first + nth * step;
            if (place >= pieces.count) continue;
            const u32 row = place / pieces.width, plane = row / pieces.rows, piece = plane / pieces.planes;
            const u64 at = pieces.src[piece] + (plane - piece * pieces.planes) * pieces.plane +
                           (row - plane * pieces.rows) * pieces.pitch;
            units[nth] = reinterpret_cast<const Unit *>(at)[place - row * pieces.width];
        }
#pragma unroll
        for (u32 nth = 0; nth < AT_ONCE; nth++) {
            const u32 place = first + nth * step;
            if (place < pieces.count) dst[place] = units[nth];
        }
    }
}

#define KERNEL extern "C" __global__ void __launch_bounds__(1024)

KERNEL fetch_4(u32 *dst, const __grid_constant__ Pieces pieces) { fetch(dst, pieces); }
KERNEL fetch_16(uint4 *dst, const __grid_constant__ Pieces pieces) { fetch(dst, pieces); }
