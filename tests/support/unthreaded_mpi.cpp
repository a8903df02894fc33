// Preloaded, this makes of any MPI library one that was built without support for threads.

extern "C" {

int PMPI_Init_thread(int* count, char*** words, int required, int* provided);

int MPI_Init_thread(int* count, char*** words, int required, int* provided) {
  const int status = PMPI_Init_thread(count, words, required, provided);
  *provided = 0;
  return status;
}
}
