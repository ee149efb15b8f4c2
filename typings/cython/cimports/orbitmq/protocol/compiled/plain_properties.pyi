NO: int
ODD: int

class Properties:
    unique_start: int
    unique_stop: int
    wait: int

def look_at(text: object, size: int, found: object) -> bool: ...
def look_at_tidy(text: object, size: int, found: object) -> bool: ...
