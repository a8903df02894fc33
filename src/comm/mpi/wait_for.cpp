#include "wait_for.hpp"

namespace tutti::mpi {

void wait_for(MPI_Request& request, std::chrono::microseconds longest_sleep, std::source_location where) {
  Patience patience(longest_sleep);
  for (;;) {
    int done = 0;
    check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), where);
    if (done != 0) return;
    patience.wait();
  }
}

}  // namespace tutti::mpi
