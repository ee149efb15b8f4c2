INT_MIN: int
LLONG_MIN: int
