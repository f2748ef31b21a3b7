assert rolling_max([1, 3, 2, 5]) == [1, 3, 3, 5]
assert rolling_max([]) == []
assert rolling_max([-3, -5, -1]) == [-3, -3, -1]
