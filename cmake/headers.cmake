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
  trireme/trireme.hpp)

set(TRIREME_ZLIB_HEADERS)
