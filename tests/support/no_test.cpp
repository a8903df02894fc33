// A program of tests that has none: what all of them include is compiled with it.
