# The headers, as users include them: relative to include/. `scripts/list_headers.py --write` writes this
# list, a test compares it with the folder.

set(TRIREME_HEADERS
  trireme/core.hpp
  trireme/core/assert.hpp
  trireme/core/bytes.hpp
  trireme/core/completion.hpp
  trireme/core/deadline.hpp
  trireme/core/error.hpp
  trireme/core/fixed_string.hpp
  trireme/core/half.hpp
  trireme/core/hash.hpp
  trireme/core/ids.hpp
  trireme/core/observer.hpp
  trireme/core/philox.hpp
  trireme/core/place.hpp
  trireme/core/version.hpp
  trireme/sys.hpp
  trireme/sys/affinity.hpp
  trireme/sys/cgroup.hpp
  trireme/sys/clock.hpp
  trireme/sys/cpu_set.hpp
  trireme/sys/fd.hpp
  trireme/sys/fork_gate.hpp
  trireme/sys/futex.hpp
  trireme/sys/memfd.hpp
  trireme/sys/memory.hpp
  trireme/sys/process.hpp
  trireme/sys/socket.hpp
  trireme/sys/thread.hpp
  trireme/sys/wait.hpp
  trireme/shm.hpp
  trireme/shm/backing/heap.hpp
  trireme/shm/backing/memfd.hpp
  trireme/shm/error_record.hpp
  trireme/shm/lease.hpp
  trireme/shm/mapping.hpp
  trireme/shm/reaper.hpp
  trireme/shm/ring.hpp
  trireme/shm/ring_layout.hpp
  trireme/shm/ring_worker.hpp
  trireme/shm/steps.hpp
  trireme/shm/word.hpp
  trireme/shm/workers.hpp
  trireme/trireme.hpp)

set(TRIREME_ZLIB_HEADERS)
