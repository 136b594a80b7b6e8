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

// Where a row of a piece begins, of all rows in order.
__device__ u64 row_at(const Pieces &pieces, u32 row) {
    const u32 plane = row / pieces.rows, piece = plane / pieces.planes;
    return pieces.src[piece] + (plane - piece * pieces.planes) * pieces.plane + (row - plane * pieces.rows) * pieces.pitch;
}

// Bytes that one request of the link brings at most, where they begin at a multiple.
#define LINE 128

// Writes the pieces to `dst`, one behind the other. The grid may be any.
template <typename Unit> __device__ void fetch(Unit *dst, const Pieces &pieces) {
    // Of a long row the first threads have nothing, so that those of a warp begin at a line.
    constexpr u32 units_of_line = LINE / sizeof(Unit);
    const bool is_long = pieces.width >= 8 * units_of_line;
    const u32 padded = is_long ? (pieces.width / units_of_line + 2) * units_of_line : pieces.width;
    const u32 count = pieces.count / pieces.width * padded, step = gridDim.x * blockDim.x;
#pragma unroll 1
    for (u32 first = blockIdx.x * blockDim.x + threadIdx.x; first < count; first += step * AT_ONCE) {
        Unit units[AT_ONCE];
        u32 places[AT_ONCE];
        // All reads are on their way before the first is there.
#pragma unroll
        for (u32 nth = 0; nth < AT_ONCE; nth++) {
            const u32 thread = first + nth * step, row = thread / padded;
            places[nth] = ~0u;
            if (thread >= count) continue;
            const u64 at = row_at(pieces, row);
            const u32 unit = thread - row * padded - (is_long ? u32(at % LINE) / u32(sizeof(Unit)) : 0);
            // Those before the first are far beyond the last.
            if (unit >= pieces.width) continue;
            places[nth] = row * pieces.width + unit;
            units[nth] = reinterpret_cast<const Unit *>(at)[unit];
        }
#pragma unroll
        for (u32 nth = 0; nth < AT_ONCE; nth++)
            if (places[nth] != ~0u) dst[places[nth]] = units[nth];
    }
}

#define WARP 32

// The unit that begins `shift` bytes behind the first of two.
__device__ uint4 between(const uint4 &first, const uint4 &second, u32 shift) {
    u32 words[8] = {first.x, first.y, first.z, first.w, second.x, second.y, second.z, second.w};
    const bool by_eight = shift & 8, by_four = shift & 4;
    const u32 bits = shift % 4 * 8;
#pragma unroll
    for (u32 nth = 0; nth < 6; nth++) words[nth] = by_eight ? words[nth + 2] : words[nth];
#pragma unroll
    for (u32 nth = 0; nth < 5; nth++) words[nth] = by_four ? words[nth + 1] : words[nth];
    return make_uint4(__funnelshift_r(words[0], words[1], bits), __funnelshift_r(words[1], words[2], bits),
                      __funnelshift_r(words[2], words[3], bits), __funnelshift_r(words[3], words[4], bits));
}

__device__ uint4 of_next_lane(const uint4 &unit) {
    return make_uint4(__shfl_down_sync(~0u, unit.x, 1), __shfl_down_sync(~0u, unit.y, 1), __shfl_down_sync(~0u, unit.z, 1),
                      __shfl_down_sync(~0u, unit.w, 1));
}

// The same where rows of whole units begin anywhere. Reads begin at multiples of 16 nevertheless: such a unit has a byte of
// the row at least, and thus lies on the row's pages. Some lanes read a part of a row, one unit more than they write.
__device__ void fetch_anywhere(uint4 *dst, const Pieces &pieces) {
    u32 lanes = 2;
    while (lanes <= pieces.width && lanes < WARP) lanes *= 2;
    const u32 written = lanes - 1, parts = (pieces.width + written - 1) / written;
    const u32 count = pieces.count / pieces.width * parts, step = gridDim.x * blockDim.x / lanes;
    const u32 lane = threadIdx.x % lanes, part = (blockIdx.x * blockDim.x + threadIdx.x) / lanes;
    // All lanes of a warp go on as long as one does.
#pragma unroll 1
    for (u32 first = part; first - threadIdx.x % WARP / lanes < count; first += step * AT_ONCE) {
        uint4 units[AT_ONCE];
        u32 shifts[AT_ONCE];
#pragma unroll
        for (u32 nth = 0; nth < AT_ONCE; nth++) {
            const u32 place = first + nth * step;
            units[nth] = make_uint4(0, 0, 0, 0), shifts[nth] = 0;
            if (place >= count) continue;
            const u32 row = place / parts, unit = (place - row * parts) * written + lane;
            const u64 at = row_at(pieces, row);
            shifts[nth] = at % 16;
            const uint4 *from = reinterpret_cast<const uint4 *>(at - shifts[nth]);
            if (unit < pieces.width + (shifts[nth] > 0)) units[nth] = from[unit];
        }
#pragma unroll
        for (u32 nth = 0; nth < AT_ONCE; nth++) {
            const u32 place = first + nth * step, row = place / parts, unit = (place - row * parts) * written + lane;
            const uint4 next = of_next_lane(units[nth]);
            if (place < count && lane < written && unit < pieces.width)
                dst[row * pieces.width + unit] = between(units[nth], next, shifts[nth]);
        }
    }
}

#define KERNEL extern "C" __global__ void __launch_bounds__(1024)

KERNEL fetch_4(u32 *dst, const __grid_constant__ Pieces pieces) { fetch(dst, pieces); }
KERNEL fetch_16(uint4 *dst, const __grid_constant__ Pieces pieces) { fetch(dst, pieces); }
KERNEL fetch_anywhere_16(uint4 *dst, const __grid_constant__ Pieces pieces) { fetch_anywhere(dst, pieces); }
