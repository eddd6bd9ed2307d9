/* Made by tests/golden/quality.py with numpy; do not edit. kid: only where both sets have one size. */
// clang-format off
static const struct { int64_t n, m; int32_t d; double kid, fid; } golden[] = {
    {40, 40, 8, 80.2153594992, 9.39412933859},
    {33, 50, 5, NAN, 5.79239629308},
    {100, 100, 70, 79.8080646107, 82.1950310427},
    {70, 64, 130, NAN, 153.881201394},
    {20, 20, 30, 77.4266908711, 35.8534127032},
    {600, 600, 8, 81.2830932928, 9.32736040891},
    {300, 700, 5, NAN, 5.83165045595},
};
