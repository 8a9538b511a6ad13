#pragma once
// The umbrella: every floor, no wing. This list is kept by scripts/list_headers.py.

#include <trireme/core.hpp>
#include <trireme/data.hpp>
#include <trireme/dist.hpp>
#include <trireme/shm.hpp>
#include <trireme/sys.hpp>
#include <trireme/threads.hpp>
