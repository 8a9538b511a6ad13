#include <trireme/trireme.hpp>

unsigned a();
unsigned b();
unsigned c();

int main() { return a() + b() + c() == 3 * trireme::version.minor_part ? 0 : 1; }
