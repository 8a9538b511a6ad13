#pragma once
// The floor `shm`: memory that processes share: backings and the ring of batches.
// This list is kept by scripts/list_headers.py.

#include <trireme/shm/mapping.hpp>
