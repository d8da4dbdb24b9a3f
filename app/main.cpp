#include "commands/cli.hpp"

#if defined(ESPALIER_LINKED_IN)
#include "host/linked_in.hpp"
#include ESPALIER_LINKED_IN
#endif

int main(int argc, char** argv) {
#if defined(ESPALIER_LINKED_IN)
  espalier::app::link_in(kLinkedIn);
#endif
  return espalier::app::run_program(argc, argv);
}
