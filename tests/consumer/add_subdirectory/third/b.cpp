#include <trireme/trireme.hpp>

unsigned b();
unsigned b() { return trireme::version.minor_part; }
