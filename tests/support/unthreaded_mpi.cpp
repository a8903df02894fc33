// Preloaded, this makes any MPI library report that it does not support threads.

extern "C" {

int PMPI_Init_thread(int* count, char*** words, int required, int* provided);

int MPI_Init_thread(int* count, char*** words, int required, int* provided) {
  const int status = PMPI_Init_thread(count, words, required, provided);
  *provided = 0;
  return status;
}
}
