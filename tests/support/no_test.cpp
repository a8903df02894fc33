// What all tests include is compiled with this one, which has none.
