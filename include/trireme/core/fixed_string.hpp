#pragma once
// Text of fixed size: as a template argument (field names), and as bytes inside shared memory (error texts).

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace trireme {

/// A string literal as a template argument: `field<"image", ...>`.
template <std::size_t N>
struct fixed_string {
    char text[N]{};

    // NOLINTNEXTLINE(google-explicit-constructor): a literal in angle brackets has to convert by itself
    constexpr fixed_string(const char (&literal)[N]) { std::copy_n(literal, N, text); }
    constexpr std::string_view view() const noexcept { return {text, N - 1}; }
    template <std::size_t M>
    friend constexpr bool operator==(const fixed_string& a, const fixed_string<M>& b) {
        return a.view() == b.view();
    }
};

/// Up to `Capacity` bytes of text inside a trivially copyable struct; longer text is cut and says so.
/// Processes  offsets only, so it may lie in shared memory; whoever owns the struct around it owns the text
template <std::size_t Capacity>
class fixed_text {
  public:
    void assign(std::string_view s) noexcept {
        length_ = static_cast<std::uint32_t>((std::min)(s.size(), Capacity));
        full_length_ = s.size();
        std::copy_n(s.data(), length_, bytes_);
    }
    void clear() noexcept { length_ = 0, full_length_ = 0; }
    bool empty() const noexcept { return length_ == 0; }
    bool truncated() const noexcept { return full_length_ > length_; }
    std::uint64_t full_length() const noexcept { return full_length_; }
    /// Bounded by the capacity whatever the bytes in memory say.
    std::string_view view() const noexcept { return {bytes_, (std::min<std::size_t>)(length_, Capacity)}; }

  private:
    std::uint64_t full_length_ = 0;
    std::uint32_t length_ = 0;
    char bytes_[Capacity] = {};
};

}  // namespace trireme
