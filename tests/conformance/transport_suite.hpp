// What every transport owes its ranks. Each function runs on one rank of a fresh group and returns what was wrong,
// or nothing: ranks may live in processes where a doctest macro would not be heard. `reachable` says from where the
// buffers come: memory that peers reach, or the rank's own.
#pragma once

#include <trireme/dist/transport.hpp>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace conformance {

using trireme::bfloat16;
using trireme::dtype_of;
using trireme::half;
namespace reduce = trireme::reduce;

/// A buffer where the test wants it.
template <class T, class Transport>
struct buffer {
    std::vector<T> own;
    std::span<T> data;

    buffer(Transport& t, std::size_t n, bool reachable) {
        if (reachable) {
            data = t.template allocate<T>(n);
        } else {
            own.resize(n);
            data = own;
        }
    }
};

/// What rank `r` brings at index `i`: magnitudes that differ, so that the order of a sum shows in its bits.
template <class T>
T value(std::uint32_t r, std::size_t i) {
    const std::uint64_t x = (i * 2654435761U + r * 40503U + 17) % 1009;
    if constexpr (std::is_integral_v<T>) {
        return static_cast<T>(x * 2654435761U + r);
    } else {
        const float scale = x % 7 == 0 ? 1024.0F : x % 5 == 0 ? 0.001F : 1.0F;
        return static_cast<T>((static_cast<float>(x) - 500.0F) * scale / 64.0F);
    }
}

template <class T>
using wide = std::conditional_t<std::is_same_v<T, half> || std::is_same_v<T, bfloat16>, float, T>;

/// The rule, said once more in plain words: go through the ranks in order, in float for half types; divide a mean
/// by the number of ranks; round once.
template <class T, class R>
T expected(std::uint32_t ranks, std::size_t i) {
    using W = wide<T>;
    W total = static_cast<W>(value<T>(0, i));
    for (std::uint32_t r = 1; r < ranks; ++r) {
        const W x = static_cast<W>(value<T>(r, i));
        if constexpr (std::is_same_v<R, reduce::product_of>) {
            if constexpr (std::is_integral_v<T>)
                total = static_cast<W>(static_cast<std::uint64_t>(total) * static_cast<std::uint64_t>(x));
            else
                total = total * x;
        } else if constexpr (std::is_same_v<R, reduce::minimum_of>) {
            total = x < total ? x : total;
        } else if constexpr (std::is_same_v<R, reduce::maximum_of>) {
            total = x > total ? x : total;
        } else if constexpr (std::is_integral_v<T>) {
            total = static_cast<W>(static_cast<std::uint64_t>(total) + static_cast<std::uint64_t>(x));
        } else {
            total = total + x;
        }
    }
    if constexpr (std::is_same_v<R, reduce::mean_of>) total = total / static_cast<W>(ranks);
    return static_cast<T>(total);
}

template <class T>
bool same_bits(T a, T b) {
    return std::memcmp(&a, &b, sizeof(T)) == 0;
}

inline std::string sentence(const char* what, const char* type, std::size_t n, std::size_t i) {
    return std::string(what) + " of " + std::to_string(n) + " " + type + ": wrong at " + std::to_string(i);
}

template <class T, class R, class Transport>
std::string one_all_reduce(Transport& t, std::size_t n, bool reachable, R how) {
    buffer<T, Transport> b(t, n, reachable);
    for (std::size_t i = 0; i < n; ++i) b.data[i] = value<T>(t.rank(), i);
    t.all_reduce(b.data, how);
    for (std::size_t i = 0; i < n; ++i)
        if (!same_bits(b.data[i], expected<T, R>(t.size(), i)))
            return sentence(R::name, trireme::name(dtype_of<T>), n, i);
    return {};
}

template <class T, class R, class Transport>
std::string one_reduce_scatter(Transport& t, std::size_t n, bool reachable, R how) {
    buffer<T, Transport> in(t, n * t.size(), reachable), out(t, n, reachable);
    for (std::size_t i = 0; i < in.data.size(); ++i) in.data[i] = value<T>(t.rank(), i);
    t.reduce_scatter(in.data, out.data, how);
    for (std::size_t i = 0; i < n; ++i)
        if (!same_bits(out.data[i], expected<T, R>(t.size(), t.rank() * n + i)))
            return sentence("reduce_scatter", trireme::name(dtype_of<T>), n, i);
    return {};
}

template <class T, class Transport>
std::string one_all_gather(Transport& t, std::size_t n, bool reachable) {
    buffer<T, Transport> in(t, n, reachable), out(t, n * t.size(), reachable);
    for (std::size_t i = 0; i < n; ++i) in.data[i] = value<T>(t.rank(), i);
    t.all_gather(in.data, out.data);
    for (std::uint32_t r = 0; r < t.size(); ++r)
        for (std::size_t i = 0; i < n; ++i)
            if (!same_bits(out.data[r * n + i], value<T>(r, i)))
                return sentence("all_gather", trireme::name(dtype_of<T>), n, r * n + i);
    return {};
}

template <class T, class Transport>
std::string one_broadcast(Transport& t, std::size_t n, bool reachable, std::uint32_t root) {
    buffer<T, Transport> b(t, n, reachable);
    for (std::size_t i = 0; i < n; ++i) b.data[i] = value<T>(t.rank(), i);
    t.broadcast(b.data, trireme::rank{root});
    for (std::size_t i = 0; i < n; ++i)
        if (!same_bits(b.data[i], value<T>(root, i)))
            return sentence("broadcast", trireme::name(dtype_of<T>), n, i);
    return {};
}

#define CONFORMANCE_TRY(call)                                             \
    do {                                                                  \
        if (std::string wrong = (call); !wrong.empty()) { return wrong; } \
    } while (false)

template <class T, class Transport>
std::string all_of_type(Transport& t) {
    for (const bool reachable : {true, false}) {
        for (const std::size_t n : {0U, 1U, 3U, 7U, 16U, 63U, 65U, 500U, 1031U, 4099U}) {
            CONFORMANCE_TRY((one_all_reduce<T>(t, n, reachable, reduce::sum)));
            CONFORMANCE_TRY((one_all_reduce<T>(t, n, reachable, reduce::product)));
            CONFORMANCE_TRY((one_all_reduce<T>(t, n, reachable, reduce::minimum)));
            CONFORMANCE_TRY((one_all_reduce<T>(t, n, reachable, reduce::maximum)));
            if constexpr (!std::is_integral_v<T>)
                CONFORMANCE_TRY((one_all_reduce<T>(t, n, reachable, reduce::mean)));
            CONFORMANCE_TRY((one_reduce_scatter<T>(t, n, reachable, reduce::sum)));
            CONFORMANCE_TRY((one_all_gather<T>(t, n, reachable)));
            CONFORMANCE_TRY((one_broadcast<T>(t, n, reachable, t.size() - 1)));
        }
    }
    return {};
}

/// Every type, operation and kind of memory, at the sizes where the way an operation takes changes.
template <class Transport>
std::string every_type_and_operation(Transport& t) {
    CONFORMANCE_TRY(all_of_type<float>(t));
    CONFORMANCE_TRY(all_of_type<double>(t));
    CONFORMANCE_TRY(all_of_type<half>(t));
    CONFORMANCE_TRY(all_of_type<bfloat16>(t));
    CONFORMANCE_TRY(all_of_type<std::int8_t>(t));
    CONFORMANCE_TRY(all_of_type<std::uint16_t>(t));
    CONFORMANCE_TRY(all_of_type<std::int32_t>(t));
    CONFORMANCE_TRY(all_of_type<std::uint64_t>(t));
    CONFORMANCE_TRY(all_of_type<long long>(t));
    return {};
}

/// More than a mebibyte, and not a multiple of anything.
template <class Transport>
std::string large_buffers(Transport& t) {
    for (const bool reachable : {true, false}) {
        CONFORMANCE_TRY((one_all_reduce<float>(t, 300'007, reachable, reduce::sum)));
        CONFORMANCE_TRY((one_all_reduce<half>(t, 600'011, reachable, reduce::mean)));
        CONFORMANCE_TRY((one_all_reduce<double>(t, 150'001, reachable, reduce::mean)));
        CONFORMANCE_TRY((one_reduce_scatter<float>(t, 100'003, reachable, reduce::mean)));
        CONFORMANCE_TRY((one_all_gather<std::int32_t>(t, 280'001, reachable)));
        CONFORMANCE_TRY((one_broadcast<double>(t, 140'001, reachable, 0)));
    }
    return {};
}

/// A part of an allocation, at an odd place: what lies beside it stays as it is.
template <class Transport>
std::string parts_of_buffers(Transport& t) {
    const std::span<float> all = t.template allocate<float>(5000);
    for (const std::size_t begin : {1U, 17U, 333U}) {
        for (const std::size_t n : {1U, 2U, 15U, 1000U, 4000U}) {
            for (std::size_t i = 0; i < all.size(); ++i) all[i] = -1.0F;
            const auto part = all.subspan(begin, n);
            for (std::size_t i = 0; i < n; ++i) part[i] = value<float>(t.rank(), i);
            t.barrier();  // peers write into this buffer from here on
            t.all_reduce(part, reduce::sum);
            for (std::size_t i = 0; i < n; ++i)
                if (!same_bits(part[i], expected<float, reduce::sum_of>(t.size(), i)))
                    return sentence("part", "float", n, i);
            if (all[begin - 1] != -1.0F || all[begin + n] != -1.0F) return "a neighbour of the buffer was changed";
        }
    }
    return {};
}

/// all_gather of a rank's part of the output, reduce_scatter into a rank's part of the input.
template <class Transport>
std::string in_place(Transport& t) {
    for (const bool reachable : {true, false}) {
        for (const std::size_t n : {1U, 100U, 5000U}) {
            buffer<double, Transport> b(t, n * t.size(), reachable);
            const auto mine = b.data.subspan(t.rank() * n, n);
            for (std::size_t i = 0; i < n; ++i) mine[i] = value<double>(t.rank(), i);
            t.all_gather(mine, b.data);
            for (std::size_t i = 0; i < b.data.size(); ++i)
                if (!same_bits(b.data[i], value<double>(static_cast<std::uint32_t>(i / n), i % n)))
                    return sentence("all_gather in place", "double", n, i);
            for (std::size_t i = 0; i < b.data.size(); ++i) b.data[i] = value<double>(t.rank(), i);
            t.barrier();
            t.reduce_scatter(b.data, mine, reduce::sum);
            for (std::size_t i = 0; i < n; ++i)
                if (!same_bits(mine[i], expected<double, reduce::sum_of>(t.size(), t.rank() * n + i)))
                    return sentence("reduce_scatter in place", "double", n, i);
        }
    }
    return {};
}

/// Zero elements are fine, and the next operation is what it would have been.
template <class Transport>
std::string nothing_at_all(Transport& t) {
    std::vector<float> none, pair{1.0F, 2.0F};
    t.all_reduce(none, reduce::sum);
    t.all_gather(none, none);
    t.broadcast(none);
    t.reduce_scatter(none, none, reduce::mean);
    t.all_reduce(pair, reduce::sum);
    const auto ranks = static_cast<float>(t.size());
    return pair[0] == ranks && pair[1] == 2 * ranks ? "" : "the sum after operations on nothing is wrong";
}

/// More operations under way than a channel holds, of all sizes, waited for from the last to the first.
template <class Transport>
std::string many_under_way(Transport& t) {
    constexpr std::size_t count = 100;
    std::vector<std::span<float>> data;
    for (std::size_t k = 0; k < count; ++k) {
        data.push_back(t.template allocate<float>(k * k));
        for (std::size_t i = 0; i < data[k].size(); ++i) data[k][i] = value<float>(t.rank(), i + k);
    }
    using completion_type = decltype(t.start_all_reduce(data[0], reduce::sum));
    std::vector<completion_type> under_way;
    for (std::size_t k = 0; k < count; ++k) {
        under_way.push_back(t.start_all_reduce(data[k], reduce::sum));
        if (k % 9 == 0) t.progress();
    }
    for (std::size_t k = count; k-- > 0;) under_way[k].wait(trireme::deadline::in(t.timeout()));
    for (std::size_t k = 0; k < count; ++k) {
        if (!under_way[k].done()) return "what was waited for is not done";
        for (std::size_t i = 0; i < data[k].size(); ++i)
            if (!same_bits(data[k][i], expected<float, reduce::sum_of>(t.size(), i + k)))
                return sentence("begun all_reduce", "float", data[k].size(), i);
    }
    return {};
}

/// Small inputs that are copied when the operation begins: more of them under way than there are places.
template <class Transport>
std::string small_ones_under_way(Transport& t) {
    constexpr std::size_t count = 60, n = 100;
    std::vector<std::vector<float>> data(count, std::vector<float>(n));
    using completion_type = decltype(t.start_all_reduce(data[0], reduce::sum));
    for (int round = 0; round < 10; ++round) {
        std::vector<completion_type> under_way;
        for (std::size_t k = 0; k < count; ++k)
            for (std::size_t i = 0; i < n; ++i) data[k][i] = value<float>(t.rank(), i + k);
        for (std::size_t k = 0; k < count; ++k) under_way.push_back(t.start_all_reduce(data[k], reduce::sum));
        for (auto& c : under_way) c.wait(trireme::deadline::in(t.timeout()));
        for (std::size_t k = 0; k < count; ++k)
            for (std::size_t i = 0; i < n; ++i)
                if (!same_bits(data[k][i], expected<float, reduce::sum_of>(t.size(), i + k)))
                    return sentence("small begun all_reduce", "float", n, i);
    }
    return {};
}

/// Operations on a channel and on the transport have sequences of their own: ranks may begin them in any order.
template <class Transport>
std::string channels_are_independent(Transport& t) {
    auto a = t.template allocate<float>(3000), b = t.template allocate<float>(3000);
    auto other = t.channel();
    for (std::size_t i = 0; i < a.size(); ++i) a[i] = b[i] = value<float>(t.rank(), i);
    t.barrier();
    if (t.rank() % 2 != 0) t.all_reduce(a, reduce::mean);
    auto on_channel = other.start_all_reduce(b, reduce::sum);
    if (t.rank() % 2 == 0) t.all_reduce(a, reduce::mean);
    on_channel.wait(trireme::deadline::in(t.timeout()));
    for (std::size_t i = 0; i < a.size(); ++i) {
        if (!same_bits(a[i], expected<float, reduce::mean_of>(t.size(), i)))
            return "mean beside a channel is wrong";
        if (!same_bits(b[i], expected<float, reduce::sum_of>(t.size(), i))) return "sum on a channel is wrong";
    }
    return {};
}

/// Half types, order, integers, NaN: the numbers that go wrong elsewhere. For 2, 3 or 4 ranks.
template <class Transport>
std::string numbers(Transport& t) {
    const bool two = t.size() == 2, three = t.size() == 3, four = t.size() == 4;
    const auto halves = [&](float x, auto how) {
        std::vector<half> v(37, half(x));
        t.all_reduce(v, how);
        return v[36].bits;
    };
    if (two && halves(40000.0F, reduce::sum) != 0x7c00) return "the sum of two halves of 40000 is not infinite";
    if (two && halves(40000.0F, reduce::mean) != 0x78e2) return "the mean of two halves of 40000 is not 40000";
    if (two && halves(0x1.0p-24F, reduce::mean) != 0x0001) return "the mean of the smallest halves is not theirs";
    if (four) {
        std::vector<bfloat16> v(37, bfloat16(t.rank() == 0 ? 256.0F : 1.0F));
        t.all_reduce(v, reduce::sum);
        if (v[36].bits != 0x4382) return "256 + 1 + 1 + 1 in bfloat16 is not 260: it was rounded on the way";
    }
    if (three) {
        const float mine = t.rank() == 0 ? 1e8F : t.rank() == 1 ? 1.0F : -1e8F;
        for (const std::size_t n : {std::size_t{1}, std::size_t{100'003}}) {
            for (int repeat = 0; repeat < (n == 1 ? 100 : 3); ++repeat) {
                std::vector<float> v(n, mine);
                t.all_reduce(v, reduce::sum);
                for (const float x : v)
                    if (x != 0.0F) return "(1e8 + 1) - 1e8 in rank order is 0 in float, for every element and size";
            }
        }
    }
    if (two) {
        std::vector<std::int8_t> v(100, std::int8_t{100});
        t.all_reduce(v, reduce::sum);
        if (v[99] != -56) return "100 + 100 in int8 does not wrap to -56";
        const float nan = std::numeric_limits<float>::quiet_NaN();
        for (const std::size_t n : {1U, 5000U}) {
            std::vector<float> sum(n, t.rank() == 0 ? nan : 1.0F), high = sum, low = sum;
            t.all_reduce(sum, reduce::sum);
            t.all_reduce(high, reduce::maximum);
            t.all_reduce(low, reduce::minimum);
            if (!std::isnan(sum[n - 1])) return "NaN on one rank did not reach the sum";
            if (high[n - 1] != 1.0F || low[n - 1] != 1.0F) return "minimum and maximum prefer the number to NaN";
        }
    }
    return {};
}

/// A barrier is passed by nobody before all have come: counted in shared memory.
template <class Transport>
std::string barriers_hold(Transport& t) {
    std::vector<std::uint64_t> all(t.size());
    for (std::uint64_t round = 0; round < 50; ++round) {
        t.barrier();
        t.all_gather(std::span<const std::uint64_t>(&round, 1), all);
        for (const auto r : all)
            if (r != round) return "a rank is in another round after a barrier";
    }
    return {};
}

#undef CONFORMANCE_TRY

}  // namespace conformance
