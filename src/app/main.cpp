#include "tutti/app/program.hpp"

int main(int argc, char** argv) { return tutti::run_program(argc, argv); }
