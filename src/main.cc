#include "cli/command.h"

int main(int argc, char** argv) { return zinc::run_cli(argc, argv); }
