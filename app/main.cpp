#include "commands/cli.hpp"

int main(int argc, char** argv) { return espalier::app::run_program(argc, argv); }
