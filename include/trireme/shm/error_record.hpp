#pragma once
// An error that crosses a process border: fixed size, in the shared page, rethrown by the side that can tell the
// user.

#include <trireme/core/error.hpp>
#include <trireme/core/fixed_string.hpp>

#include <cstdint>
#include <exception>
#include <string>
#include <type_traits>
#include <typeinfo>

#include <cxxabi.h>

namespace trireme {

/// What a worker was doing, for messages; never used to decide anything.
enum class stage : std::uint32_t { resting, start_up, reading };

struct error_record {
    std::uint32_t kind = 0;  ///< an errc, 0 = none
    std::uint32_t worker = 0;
    std::int32_t pid = 0;
    std::int32_t signal = 0;
    std::uint64_t sample = 0;
    fixed_text<128> type;  ///< of the user's exception
    fixed_text<320> text;  ///< what it said
};
static_assert(std::is_trivially_copyable_v<error_record> && std::is_standard_layout_v<error_record>);
static_assert(sizeof(error_record) <= 512, "one record a part; a ring of 256 slots of 8 parts has 2048 of them");

namespace detail {

inline void demangle_into(fixed_text<128>& out, const char* name) {
    int status = 0;
    char* const readable = abi::__cxa_demangle(name, nullptr, nullptr, &status);
    out.assign(status == 0 && readable != nullptr ? readable : name);
    std::free(readable);
}

/// Describes the exception that is being handled. Call inside a catch block. Anything can be thrown: 42 as well.
inline void describe_current_exception(error_record& out) noexcept {
    out.kind = static_cast<std::uint32_t>(errc::remote);
    try {
        if (const std::type_info* type = abi::__cxa_current_exception_type()) demangle_into(out.type, type->name());
        throw;
    } catch (const error& e) {
        std::string text = e.parts().what;
        if (!e.parts().hint.empty()) text += " (try: " + e.parts().hint + ")";
        out.text.assign(text);
    } catch (const std::exception& e) { out.text.assign(e.what()); } catch (...) {
        out.text.assign("unknown exception");
    }
}

}  // namespace detail

/// "std::runtime_error: disk gone on shelf 9... (cut: 320 of 200000 bytes)"
inline std::string describe(const error_record& r) {
    std::string text;
    if (!r.type.empty()) text += std::string(r.type.view()) + ": ";
    text += std::string(r.text.view());
    if (r.text.truncated())
        text += "... (cut: " + std::to_string(r.text.view().size()) + " of " +
                std::to_string(r.text.full_length()) + " bytes)";
    return text;
}

}  // namespace trireme
