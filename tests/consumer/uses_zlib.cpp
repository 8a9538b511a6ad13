// The wing as one header.
#include <trireme/zlib.hpp>

int main() { return 0; }
