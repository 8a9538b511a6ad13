#pragma once
// A failure on its way to the user: as a value in one process, and as a record that the first rank to find out
// writes into shared memory for all others.

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>

#include <trireme/core/bytes.hpp>
#include <trireme/core/error.hpp>
#include <trireme/core/fixed_string.hpp>

namespace trireme::detail {

struct failure {
    static constexpr std::uint32_t nobody = 0xffffffff;

    errc kind = errc::peer;
    std::string what;
    std::string hint;
    std::uint32_t about = nobody;  ///< the rank that failed
};

/// Throws the error of the failure's kind; `where` names the rank that speaks.
[[noreturn]] inline void throw_failure(const failure& f, std::string where) {
    message m{f.what, std::move(where), f.hint};
    switch (f.kind) {
        case errc::timeout:
            throw timeout_error(std::move(m));
        case errc::peer:
            throw peer_error(std::move(m));
        case errc::remote:
            throw remote_error(std::move(m));
        case errc::mismatch:
            throw mismatch_error(std::move(m));
        case errc::system:
        case errc::usage:
            break;
    }
    throw usage_error(std::move(m));
}

/// Written once, by whoever is first. Zeroed memory is an empty record.
struct alignas(flag_line) failure_record {
    static constexpr std::uint32_t empty = 0, writing = 1, written = 2;

    std::atomic<std::uint32_t> state;
    std::uint32_t kind;  ///< an errc
    std::uint32_t about;
    std::uint32_t reserved;
    fixed_text<880> what;
    fixed_text<336> hint;

    /// False when somebody was first.
    bool write(const failure& f) noexcept {
        std::uint32_t expected = empty;
        if (!state.compare_exchange_strong(expected, writing, std::memory_order_seq_cst)) return false;
        kind = static_cast<std::uint32_t>(f.kind);
        about = f.about;
        what.assign(f.what);
        hint.assign(f.hint);
        state.store(written, std::memory_order_seq_cst);  // (F)
        return true;
    }
    bool any() const noexcept { return state.load(std::memory_order_seq_cst) != empty; }
    /// Empty also while the writer writes (or died writing: then its death is found by itself).
    std::optional<failure> read() const {
        if (state.load(std::memory_order_seq_cst) != written) return std::nullopt;  // (F) pairs with write
        failure f{static_cast<errc>(kind), std::string(what.view()), std::string(hint.view()), about};
        if (what.truncated()) f.what += "... (cut: of " + std::to_string(what.full_length()) + " bytes)";
        return f;
    }
};
static_assert(std::is_standard_layout_v<failure_record> && sizeof(failure_record) % flag_line == 0);

}  // namespace trireme::detail
