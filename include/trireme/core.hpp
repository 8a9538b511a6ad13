#pragma once
// The floor `core`: errors, deadlines, observers, strong types, hashes: what everything else is made of.
// This list is kept by scripts/list_headers.py.

#include <trireme/core/assert.hpp>
#include <trireme/core/bytes.hpp>
#include <trireme/core/completion.hpp>
#include <trireme/core/deadline.hpp>
#include <trireme/core/error.hpp>
#include <trireme/core/fixed_string.hpp>
#include <trireme/core/half.hpp>
#include <trireme/core/hash.hpp>
#include <trireme/core/ids.hpp>
#include <trireme/core/observer.hpp>
#include <trireme/core/philox.hpp>
#include <trireme/core/place.hpp>
#include <trireme/core/version.hpp>
