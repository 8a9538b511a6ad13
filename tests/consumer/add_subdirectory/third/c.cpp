#include <trireme/trireme.hpp>

unsigned c();
unsigned c() { return trireme::version.minor_part; }
