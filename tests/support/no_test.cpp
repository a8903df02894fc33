// The precompiled header of all tests is compiled with this file, which has no test.
