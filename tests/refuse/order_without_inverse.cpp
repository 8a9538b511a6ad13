// A bound order can say where a sample stands.
// expect: what bind\(\) returns is trivially copyable and has noexcept size\(\), at\(position\)

#include <trireme/data/order.hpp>

#include <cstdint>
#include <span>
#include <string_view>

struct backwards {
    static constexpr std::string_view kind = "backwards";
    struct bound {
        std::uint64_t n;
        std::uint64_t size() const noexcept { return n; }
        std::uint64_t at(std::uint64_t p) const noexcept { return n - 1 - p; }
        void fill(std::uint64_t first, std::uint64_t stride, std::span<std::uint64_t> out) const noexcept {
            for (std::uint64_t& index : out) index = at(first), first += stride;
        }
#ifdef TRIREME_REFUSE_OK
        std::uint64_t position_of(std::uint64_t index) const noexcept { return n - 1 - index; }
#endif
    };
    bound bind(std::uint64_t n, std::uint64_t, std::uint64_t) const { return {n}; }
};

static_assert(trireme::explain::order<backwards>());
