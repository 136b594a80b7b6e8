// Writes elements of device memory in another order, as another type, or normalized: the result is dense, and its element
// at an index comes from the source plus the index times strides. `mod.rs` launches these kernels, `layout.rs` makes their
// arguments. Compiled to PTX by .ci/ptx; no headers are needed.
//
// Each job has two kernels. `gather_*` reads wherever the next element of the result comes from: good where neighbours in
// the result are near each other in the source, too. `tile_*` takes squares through shared memory, so that reads go along
// the axis that is close in the source, and writes along the last axis of the result.

typedef unsigned long long u64;
typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned char u8;

constexpr u32 MOST_AXES = 8, MOST_CHANNELS = 64, SIDE = 32, ROWS = 8, THREADS = SIDE * ROWS;

// Numbers of element types, in the order of the crate's `Dtype`.
enum Type { BOOL, U8, U16, U32, U64, I8, I16, I32, I64, F16, BF16, F32, F64 };

struct Layout {
    u64 count;
    u64 shape[MOST_AXES];
    // In elements of the source.
    long long strides[MOST_AXES];
    u32 axes;
    // For tiles: the axis that is close in the source.
    u32 across;
    u32 stored, wanted;
};

struct Normalization {
    float scale;
    // The axis of the channels; no axis where there is one channel.
    u32 axis;
    u32 wanted;
    float mean[MOST_CHANNELS], std[MOST_CHANNELS];
};

// Takes the index of the last axis off a place among all.
__device__ u64 split(u64 &place, u64 extent) {
    if (((place | extent) >> 32) == 0) {
        u32 whole = u32(place) / u32(extent), index = u32(place) - whole * u32(extent);
        place = whole;
        return index;
    }
    u64 whole = place / extent, index = place - whole * extent;
    place = whole;
    return index;
}

// What is done with each element: as it is.
template <typename T> struct Copied {
    typedef T Raw;
    __device__ static u32 channels() { return MOST_AXES; }
    __device__ static T read(const void *src, long long place) { return static_cast<const T *>(src)[place]; }
    __device__ static void write(void *dst, u64 place, T raw, u32) { static_cast<T *>(dst)[place] = raw; }
};

__device__ u16 half_of(float value) {
    u16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

// To nearest, ties to even. Devices before compute capability 8.0 have no instruction for it.
__device__ u16 brain_of(float value) {
    u32 bits = __float_as_uint(value);
    if (value != value) return u16(bits >> 16 | 0x40);
    return u16((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// Towards 0, with the last bit set where that is not exact: rounded once more to fewer bits, it is as if rounded once.
__device__ float to_odd(double value) {
    float near = __double2float_rz(value);
    return double(near) == value || value != value ? near : __uint_as_float(__float_as_uint(near) | 1);
}

__device__ float of_half(u16 bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}

// Bits of whole elements; those beyond the element's size are not looked at.
__device__ u64 load(const void *src, long long place, u32 type) {
    switch (type) {
    case BOOL: case U8: case I8: return static_cast<const u8 *>(src)[place];
    case U16: case I16: case F16: case BF16: return static_cast<const u16 *>(src)[place];
    case U32: case I32: case F32: return static_cast<const u32 *>(src)[place];
    default: return static_cast<const u64 *>(src)[place];
    }
}

__device__ void store(void *dst, u64 place, u64 bits, u32 type) {
    switch (type) {
    case BOOL: case U8: case I8: static_cast<u8 *>(dst)[place] = u8(bits); break;
    case U16: case I16: case F16: case BF16: static_cast<u16 *>(dst)[place] = u16(bits); break;
    case U32: case I32: case F32: static_cast<u32 *>(dst)[place] = u32(bits); break;
    default: static_cast<u64 *>(dst)[place] = bits;
    }
}

__device__ bool is_real(u32 type) { return type >= F16; }
__device__ bool is_signed(u32 type) { return type >= I8 && type <= I64; }

// The bits as 64 of an integer.
__device__ u64 whole(u64 bits, u32 type) {
    switch (type) {
    case BOOL: return bits != 0;
    case I8: return u64((long long)(signed char)(bits));
    case I16: return u64((long long)(short)(bits));
    case I32: return u64((long long)(int)(bits));
    default: return bits;
    }
}

// The value, exact but for integers beyond 2^53, which are rounded to nearest.
__device__ double real(u64 bits, u32 type) {
    switch (type) {
    case F16: return of_half(u16(bits));
    case BF16: return __uint_as_float(u32(bits) << 16);
    case F32: return __uint_as_float(u32(bits));
    case F64: return __longlong_as_double((long long)(bits));
    default: return is_signed(type) ? __ll2double_rn((long long)(whole(bits, type))) : __ull2double_rn(whole(bits, type));
    }
}

// Without its fraction; the nearest that the integer type has where that is out of its range; 0 for NaN.
__device__ u64 truncated(double value, u32 type) {
    if (value != value) return 0;
    if (type == U64) return __double2ull_rz(value);
    long long found = __double2ll_rz(value);
    if (type == I64) return u64(found);
    u32 bits = 8u << (is_signed(type) ? type - I8 : type - U8);
    long long most = is_signed(type) ? (1ll << (bits - 1)) - 1 : (1ll << bits) - 1;
    long long least = is_signed(type) ? -most - 1 : 0;
    return u64(found < least ? least : found > most ? most : found);
}

__device__ float single(u64 bits, u32 type) {
    if (is_real(type)) return __double2float_rn(real(bits, type));
    return is_signed(type) ? __ll2float_rn((long long)(whole(bits, type))) : __ull2float_rn(whole(bits, type));
}

// The value towards 0, with the last bit set where that is not exact, whatever the type.
__device__ float odd(u64 bits, u32 type) {
    if (is_real(type)) return to_odd(real(bits, type));
    const u64 value = whole(bits, type);
    const bool negative = is_signed(type) && (long long)(value) < 0;
    const u64 magnitude = negative ? 0 - value : value;
    float near = __ull2float_rz(magnitude);
    if (u64(near) != magnitude) near = __uint_as_float(__float_as_uint(near) | 1);
    return negative ? -near : near;
}

__device__ u64 converted(u64 bits, u32 stored, u32 wanted) {
    switch (wanted) {
    case BOOL: return is_real(stored) ? real(bits, stored) != 0 : whole(bits, stored) != 0;
    case F16: return half_of(odd(bits, stored));
    case BF16: return brain_of(odd(bits, stored));
    case F32: return __float_as_uint(single(bits, stored));
    case F64: return u64(__double_as_longlong(real(bits, stored)));
    default: return is_real(stored) ? truncated(real(bits, stored), wanted) : whole(bits, stored);
    }
}

// What is done with each element: it becomes one of another type.
struct Cast {
    typedef u64 Raw;
    u32 stored, wanted;
    __device__ static u32 channels() { return MOST_AXES; }
    __device__ u64 read(const void *src, long long place) const { return load(src, place, stored); }
    __device__ void write(void *dst, u64 place, u64 raw, u32) const {
        store(dst, place, converted(raw, stored, wanted), wanted);
    }
};

// What is done with each element: `(x * scale - mean) / std`, each operation rounded.
struct Normalized {
    typedef u8 Raw;
    const Normalization &by;
    __device__ u32 channels() const { return by.axis; }
    __device__ static u8 read(const void *src, long long place) { return static_cast<const u8 *>(src)[place]; }
    __device__ void write(void *dst, u64 place, u8 raw, u32 channel) const {
        float value = __fsub_rn(__fmul_rn(float(raw), by.scale), by.mean[channel]);
        value = __fdiv_rn(value, by.std[channel]);
        switch (by.wanted) {
        case F16: static_cast<u16 *>(dst)[place] = half_of(value); break;
        case BF16: static_cast<u16 *>(dst)[place] = brain_of(value); break;
        default: static_cast<float *>(dst)[place] = value;
        }
    }
};

template <typename Job> __device__ void gather(const void *src, void *dst, const Layout &layout, const Job &job) {
    u64 step = u64(gridDim.x) * THREADS;
#pragma unroll 1
    for (u64 place = u64(blockIdx.x) * THREADS + threadIdx.x; place < layout.count; place += step) {
        u64 rest = place;
        long long from = 0;
        u32 channel = 0;
#pragma unroll 1
        for (u32 axis = layout.axes; axis-- > 0;) {
            u64 index = axis == 0 ? rest : split(rest, layout.shape[axis]);
            from += (long long)(index) * layout.strides[axis];
            if (axis == job.channels()) channel = u32(index);
        }
        job.write(dst, place, job.read(src, from), channel);
    }
}

template <typename Job> __device__ void tiles(const void *src, void *dst, const Layout &layout, const Job &job) {
    __shared__ typename Job::Raw square[SIDE][SIDE + 1];
    const u32 last = layout.axes - 1, across = layout.across, x = threadIdx.x;
    const u64 width = layout.shape[last], height = layout.shape[across];
    const u64 wide = (width + SIDE - 1) / SIDE, high = (height + SIDE - 1) / SIDE;
    const u64 squares = layout.count / (width * height) * wide * high;
    const long long along = layout.strides[across], aside = layout.strides[last];
#pragma unroll 1
    for (u64 nth = blockIdx.x; nth < squares; nth += gridDim.x) {
        u64 rest = nth, to = 0, step = 1, down = 0;
        const u64 left = split(rest, wide) * SIDE, top = split(rest, high) * SIDE;
        long long from = 0;
        u32 channel = 0;
#pragma unroll 1
        for (u32 axis = layout.axes; axis-- > 0;) {
            u64 index = left;
            if (axis == across) {
                index = top;
                down = step;
            } else if (axis != last) {
                index = split(rest, layout.shape[axis]);
            }
            from += (long long)(index) * layout.strides[axis];
            to += index * step;
            step *= layout.shape[axis];
            if (axis == job.channels()) channel = u32(index);
        }
        // Unrolled: all reads are on their way before the first is there.
#pragma unroll
        for (u32 y = threadIdx.y; y < SIDE; y += ROWS) {
            if (left + y < width && top + x < height) square[y][x] = job.read(src, from + y * aside + x * along);
        }
        __syncthreads();
#pragma unroll 1
        for (u32 y = threadIdx.y; y < SIDE; y += ROWS) {
            u32 of = channel + (job.channels() == across ? y : job.channels() == last ? x : 0);
            if (left + x < width && top + y < height) job.write(dst, to + y * down + x, square[x][y], of);
        }
        __syncthreads();
    }
}

#define KERNEL extern "C" __global__ void __launch_bounds__(THREADS)

#define COPIES(size, T) \
    KERNEL gather_##size(const void *src, void *dst, Layout layout) { gather(src, dst, layout, Copied<T>()); } \
    KERNEL tile_##size(const void *src, void *dst, Layout layout) { tiles(src, dst, layout, Copied<T>()); }

COPIES(1, u8)
COPIES(2, u16)
COPIES(4, u32)
COPIES(8, u64)
COPIES(16, uint4)

KERNEL gather_cast(const void *src, void *dst, Layout layout) {
    gather(src, dst, layout, Cast{layout.stored, layout.wanted});
}

KERNEL tile_cast(const void *src, void *dst, Layout layout) {
    tiles(src, dst, layout, Cast{layout.stored, layout.wanted});
}

KERNEL gather_normalized(const void *src, void *dst, Layout layout, Normalization by) {
    gather(src, dst, layout, Normalized{by});
}

KERNEL tile_normalized(const void *src, void *dst, Layout layout, Normalization by) {
    tiles(src, dst, layout, Normalized{by});
}
