static_assert(__cplusplus == 201703L, "the parent's standard was changed");

int main() { return 0; }
