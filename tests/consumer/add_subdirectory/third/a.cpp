#include <trireme/trireme.hpp>

unsigned a();
unsigned a() { return trireme::version.minor_part; }
