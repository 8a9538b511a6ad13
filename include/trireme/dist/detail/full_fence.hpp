#pragma once
// A full memory fence: stores before it are visible before loads after it read.

#include <atomic>

namespace trireme::detail {

inline void full_fence() noexcept {
#if defined(__SANITIZE_THREAD__)
    // g++ refuses fences in this mode, because ThreadSanitizer does not see them; a locked operation is one.
    std::atomic<int> word{0};
    word.fetch_add(1, std::memory_order_seq_cst);
#else
    std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace trireme::detail
