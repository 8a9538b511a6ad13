#pragma once
// A set of CPU numbers of any size, with the list notation of the kernel and of taskset: "0-3,8,10-14:2".

#include <trireme/core/error.hpp>
#include <trireme/core/ids.hpp>

#include <algorithm>
#include <bit>
#include <climits>
#include <cstddef>
#include <initializer_list>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sched.h>

namespace trireme {

/// Which CPUs: a value, compared by content, iterated in ascending order. Numbers up to `max_cpu`.
///
/// Threads  as any value: share it const, or copy it
class cpu_set {
  public:
    /// The highest number that fits: a typing error such as "0-4294967295" is refused before it costs memory.
    static constexpr unsigned max_cpu = 65535;

    class iterator;
    using const_iterator = iterator;

    cpu_set() noexcept = default;
    cpu_set(std::initializer_list<unsigned> cpus) {
        for (const unsigned cpu : cpus) insert(cpu);
    }
    /// The CPUs first, first + 1, ... up to and including `last`.
    static cpu_set span(unsigned first, unsigned last) {
        cpu_set s;
        for (unsigned cpu = first; cpu <= last; ++cpu) s.insert(cpu);
        return s;
    }
    /// Reads a list: entries `N`, `N-M` or `N-M:STEP` between commas, spaces around them ignored; no entry at all
    /// is the empty set, as the kernel writes it.
    /// Throws  usage_error with the position and the text
    static cpu_set parse(std::string_view list);

    /// Throws  usage_error above `max_cpu`
    void insert(unsigned cpu);
    void erase(unsigned cpu) noexcept {
        if (cpu / word_bits >= words_.size()) return;
        words_[cpu / word_bits] &= ~bit(cpu);
        trim();
    }

    bool empty() const noexcept { return words_.empty(); }
    bool contains(unsigned cpu) const noexcept {
        return cpu / word_bits < words_.size() && (words_[cpu / word_bits] & bit(cpu)) != 0;
    }
    /// Whether every CPU of `other` is in this set.
    bool contains(const cpu_set& other) const { return (other - *this).empty(); }
    unsigned count() const noexcept {
        unsigned n = 0;
        for (const word w : words_) n += static_cast<unsigned>(std::popcount(w));
        return n;
    }
    /// The lowest CPU. Needs a set that is not empty.
    unsigned first() const noexcept;
    /// The k-th lowest CPU, from 0. Needs k < count().
    unsigned nth(unsigned k) const noexcept;

    iterator begin() const noexcept;
    iterator end() const noexcept;

    /// The part of rank `who.index` when `who.count` ranks divide the CPUs: contiguous in the set's order, sizes
    /// differ by at most one, larger ones first. With more ranks than CPUs each gets one CPU, in turn.
    cpu_set share(shard who) const;

    friend bool operator==(const cpu_set&, const cpu_set&) = default;
    friend cpu_set operator|(cpu_set a, const cpu_set& b) {
        if (a.words_.size() < b.words_.size()) a.words_.resize(b.words_.size());
        for (std::size_t i = 0; i < b.words_.size(); ++i) a.words_[i] |= b.words_[i];
        return a;
    }
    friend cpu_set operator&(cpu_set a, const cpu_set& b) {
        if (a.words_.size() > b.words_.size()) a.words_.resize(b.words_.size());
        for (std::size_t i = 0; i < a.words_.size(); ++i) a.words_[i] &= b.words_[i];
        a.trim();
        return a;
    }
    friend cpu_set operator-(cpu_set a, const cpu_set& b) {
        for (std::size_t i = 0; i < (std::min)(a.words_.size(), b.words_.size()); ++i) a.words_[i] &= ~b.words_[i];
        a.trim();
        return a;
    }

    /// The shortest list that parses back to this set, without steps: "0-3,8".
    std::string text() const;

    /// For sched_setaffinity and friends: the set as the kernel's mask, and how many bytes it has. Never smaller
    /// than a cpu_set_t, which holds 1024 CPUs; the kernel ignores the bits of CPUs it does not have.
    struct sched_mask {
        std::vector<unsigned long> words;
        std::size_t bytes() const noexcept { return words.size() * sizeof(unsigned long); }
        ::cpu_set_t* get() noexcept { return reinterpret_cast<::cpu_set_t*>(words.data()); }
    };
    sched_mask to_sched() const {
        sched_mask m{words_};
        m.words.resize((std::max)(m.words.size(), sizeof(::cpu_set_t) / sizeof(word)));
        return m;
    }
    static cpu_set from_sched(const sched_mask& m) {
        cpu_set s;
        s.words_ = m.words;
        s.trim();
        return s;
    }

  private:
    using word = unsigned long;  // the kernel's own unit, so that the words are the mask of the system call
    static constexpr unsigned word_bits = sizeof(word) * CHAR_BIT;
    static constexpr word bit(unsigned cpu) noexcept { return word{1} << (cpu % word_bits); }

    void trim() noexcept {
        while (!words_.empty() && words_.back() == 0) words_.pop_back();
    }
    /// The lowest member that is >= cpu, or one past everything.
    unsigned at_or_after(unsigned cpu) const noexcept {
        const auto past = static_cast<unsigned>(words_.size()) * word_bits;
        while (cpu < past) {
            const word rest = words_[cpu / word_bits] >> (cpu % word_bits);
            if (rest != 0) return cpu + static_cast<unsigned>(std::countr_zero(rest));
            cpu = (cpu / word_bits + 1) * word_bits;
        }
        return past;
    }

    std::vector<word> words_;  // no zero word at the end, so that equal sets have equal words
};

/// Forward, by value: the set itself holds bits.
class cpu_set::iterator {
  public:
    using value_type = unsigned;
    using difference_type = std::ptrdiff_t;
    using iterator_category = std::input_iterator_tag;
    using iterator_concept = std::forward_iterator_tag;
    using pointer = void;
    using reference = unsigned;

    iterator() noexcept = default;
    unsigned operator*() const noexcept { return at_; }
    iterator& operator++() noexcept {
        at_ = set_->at_or_after(at_ + 1);
        return *this;
    }
    iterator operator++(int) noexcept {
        auto old = *this;
        ++*this;
        return old;
    }
    friend bool operator==(const iterator&, const iterator&) = default;

  private:
    friend class cpu_set;
    iterator(const cpu_set* set, unsigned at) noexcept : set_(set), at_(at) {}
    const cpu_set* set_ = nullptr;
    unsigned at_ = 0;
};

inline cpu_set::iterator cpu_set::begin() const noexcept { return {this, at_or_after(0)}; }
inline cpu_set::iterator cpu_set::end() const noexcept {
    return {this, static_cast<unsigned>(words_.size()) * word_bits};
}
inline unsigned cpu_set::first() const noexcept { return at_or_after(0); }
inline unsigned cpu_set::nth(unsigned k) const noexcept {
    auto cpu = at_or_after(0);
    for (; k > 0; --k) cpu = at_or_after(cpu + 1);
    return cpu;
}

namespace detail {

/// What is wrong with a list, and where.
struct cpu_list_fault {
    std::size_t position = 0;  ///< of the offending character, from 0
    const char* why = nullptr;
    explicit operator bool() const noexcept { return why != nullptr; }
};

/// Reads a list into `out`, which is left as it was if there is a fault. Never throws for bad text, because a
/// malformed file of the system deserves a warning and not the end of the program.
inline cpu_list_fault parse_cpu_list(std::string_view list, cpu_set& out) {
    std::size_t i = 0;
    const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\n'; };
    const auto skip = [&] {
        while (i < list.size() && blank(list[i])) ++i;
    };
    const auto digit = [&] { return i < list.size() && list[i] >= '0' && list[i] <= '9'; };
    const auto number = [&](unsigned& n) {  // stops at the first digit that makes it too large
        for (n = 0; digit() && n <= cpu_set::max_cpu; ++i) n = n * 10 + static_cast<unsigned>(list[i] - '0');
        return n <= cpu_set::max_cpu;
    };
    cpu_set found;
    skip();
    while (i < list.size()) {
        const std::size_t entry = i;
        unsigned low = 0, step = 1;
        if (!digit()) return {i, "a CPU number is expected"};
        if (!number(low)) return {entry, "the CPU number is too large"};
        unsigned high = low;
        if (i < list.size() && list[i] == '-') {
            const std::size_t second = ++i;
            if (!digit()) return {i, "the end of the range is expected"};
            if (!number(high)) return {second, "the CPU number is too large"};
            if (high < low) return {entry, "the range ends before it begins"};
            if (i < list.size() && list[i] == ':') {
                const std::size_t third = ++i;
                if (!digit()) return {i, "the step is expected"};
                if (!number(step) || step == 0) return {third, "the step must be between 1 and 65535"};
            }
        }
        for (unsigned cpu = low; cpu <= high; cpu += step) found.insert(cpu);
        skip();
        if (i == list.size()) break;
        if (list[i] != ',') return {i, "a comma is expected"};
        ++i;
        skip();
        if (i == list.size()) return {i, "a CPU number is expected"};
    }
    out = std::move(found);
    return {};
}

namespace say {
inline message bad_cpu_list(std::string_view list, const cpu_list_fault& fault) {
    return {"the CPU list \"" + std::string(list) + "\" cannot be read: " + fault.why + " at position " +
                std::to_string(fault.position + 1),
            "", "a list looks like 0-3,8,10-14:2, with numbers up to " + std::to_string(cpu_set::max_cpu)};
}
inline message cpu_number_too_large(unsigned cpu) {
    return {"there is no CPU " + std::to_string(cpu), "",
            "CPU numbers go up to " + std::to_string(cpu_set::max_cpu)};
}
}  // namespace say

}  // namespace detail

inline void cpu_set::insert(unsigned cpu) {
    if (cpu > max_cpu) throw usage_error(detail::say::cpu_number_too_large(cpu));
    if (cpu / word_bits >= words_.size()) words_.resize(cpu / word_bits + 1);
    words_[cpu / word_bits] |= bit(cpu);
}

inline cpu_set cpu_set::parse(std::string_view list) {
    cpu_set s;
    if (const auto fault = detail::parse_cpu_list(list, s))
        throw usage_error(detail::say::bad_cpu_list(list, fault));
    return s;
}

inline std::string cpu_set::text() const {
    std::string out;
    const auto past = static_cast<unsigned>(words_.size()) * word_bits;
    for (unsigned low = at_or_after(0); low < past;) {
        unsigned high = low;
        while (contains(high + 1)) ++high;
        if (!out.empty()) out += ',';
        out += std::to_string(low);
        if (high > low) out += "-" + std::to_string(high);
        low = at_or_after(high + 1);
    }
    return out;
}

inline cpu_set cpu_set::share(shard who) const {
    const unsigned n = count();
    cpu_set part;
    if (n == 0 || who.count == 0) return part;
    if (who.count >= n) {
        part.insert(nth(who.index % n));
        return part;
    }
    const unsigned each = n / who.count, larger = n % who.count;
    const unsigned from = who.index * each + (std::min)(who.index, larger);
    const unsigned size = each + (who.index < larger ? 1 : 0);
    for (unsigned k = from, cpu = nth(from); k < from + size; ++k, cpu = at_or_after(cpu + 1)) part.insert(cpu);
    return part;
}

}  // namespace trireme
