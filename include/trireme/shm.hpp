#pragma once
// The floor `shm`: memory that processes share: backings and the ring of batches.
// This list is kept by scripts/list_headers.py.

#include <trireme/shm/backing/heap.hpp>
#include <trireme/shm/backing/memfd.hpp>
#include <trireme/shm/error_record.hpp>
#include <trireme/shm/lease.hpp>
#include <trireme/shm/mapping.hpp>
#include <trireme/shm/reaper.hpp>
#include <trireme/shm/ring.hpp>
#include <trireme/shm/ring_layout.hpp>
#include <trireme/shm/ring_worker.hpp>
#include <trireme/shm/steps.hpp>
#include <trireme/shm/word.hpp>
#include <trireme/shm/workers.hpp>
