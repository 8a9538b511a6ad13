#pragma once
// Do all ranks have the same plan, and the same parameters? Over any transport, with an error on every rank that
// names the ranks and the first thing that differs.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <trireme/core/error.hpp>
#include <trireme/core/hash.hpp>
#include <trireme/dist/detail/say.hpp>
#include <trireme/dist/plan.hpp>

namespace trireme::detail {

namespace say {
inline message plans_differ(const std::string& first, const std::string& other, std::uint32_t other_rank,
                            std::string who) {
    const auto or_none = [](const std::string& s) { return s.empty() ? std::string("no further parameter") : s; };
    return {
        "the ranks have different plans: " + or_none(first) + " on rank 0, but " + or_none(other) + " on rank " +
            std::to_string(other_rank),
        std::move(who),
        "build the layout from the same model on every rank: same names, shapes, types, order and bucket limits"};
}
inline message parameters_differ(const param_spec& p, const std::vector<std::uint32_t>& ranks, std::string who) {
    return {"the parameters differ between the ranks before the first update: " + describe(p) + " of " +
                list_ranks(ranks) + " is not that of rank 0",
            std::move(who),
            "call broadcast() after the parameters are initialised, or initialise them from the same seed on every "
            "rank"};
}
}  // namespace say

/// The lines of every rank, padded to one length: only after the hashes have differed.
template <class Transport>
std::vector<std::vector<std::string>> gather_lines(Transport& t, const std::vector<std::string>& mine) {
    std::string text;
    for (const auto& line : mine) text += line + "\n";
    const std::uint64_t length = text.size();
    std::vector<std::uint64_t> lengths(t.size());
    t.all_gather(std::span(&length, 1), lengths);
    const std::uint64_t longest = *std::max_element(lengths.begin(), lengths.end());
    text.resize(longest, '\n');
    std::vector<char> all(longest * t.size());
    t.all_gather(std::span<const char>(text), all);
    std::vector<std::vector<std::string>> lines(t.size());
    for (std::uint32_t r = 0; r < t.size(); ++r) {
        std::string_view rest(all.data() + r * longest, lengths[r]);
        while (!rest.empty()) {
            const std::size_t end = rest.find('\n');
            lines[r].emplace_back(rest.substr(0, end));
            rest.remove_prefix(end + 1);
        }
    }
    return lines;
}

/// A collective call. Throws mismatch_error on every rank unless all plans are equal.
template <class Transport>
void check_plans(Transport& t, const plan& p, const std::string& who) {
    const std::uint64_t mine = p.hash();
    std::vector<std::uint64_t> hashes(t.size());
    t.all_gather(std::span(&mine, 1), hashes);
    const auto odd = std::find_if(hashes.begin(), hashes.end(), [&](auto h) { return h != hashes[0]; });
    if (odd == hashes.end()) return;
    const auto lines = gather_lines(t, p.lines());
    const auto r = static_cast<std::uint32_t>(odd - hashes.begin());
    const auto at = [&](std::uint32_t rank, std::size_t i) {
        return i < lines[rank].size() ? lines[rank][i] : std::string();
    };
    std::size_t i = 0;
    while (at(0, i) == at(r, i) && (!at(0, i).empty() || !at(r, i).empty())) ++i;
    throw mismatch_error(say::plans_differ(at(0, i), at(r, i), r, who));
}

inline std::uint64_t hash_bytes(const std::byte* p, std::size_t n) noexcept {
    std::uint64_t h = 0x9e3779b97f4a7c15ULL ^ n;
    for (; n >= 8; p += 8, n -= 8) {
        std::uint64_t word = 0;
        std::memcpy(&word, p, 8);
        h = (h ^ word) * 0xff51afd7ed558ccdULL;
        h ^= h >> 32;
    }
    std::uint64_t tail = 0;
    std::memcpy(&tail, p, n);
    return mix64(h ^ tail);
}

/// A collective call. Throws mismatch_error on every rank unless the parameters have the same bytes.
template <class Transport>
void check_parameters(Transport& t, const plan& p, const std::byte* arena, const std::string& who) {
    const std::size_t n = p.parameters().size();
    std::vector<std::uint64_t> mine(n), all(n * t.size());
    for (std::size_t i = 0; i < n; ++i) mine[i] = hash_bytes(arena + p.place(i), p.parameters()[i].bytes());
    t.all_gather(mine, all);
    for (std::size_t i = 0; i < n; ++i) {
        std::vector<std::uint32_t> odd;
        for (std::uint32_t r = 1; r < t.size(); ++r)
            if (all[r * n + i] != all[i]) odd.push_back(r);
        if (!odd.empty()) throw mismatch_error(say::parameters_differ(p.parameters()[i], odd, who));
    }
}

}  // namespace trireme::detail
