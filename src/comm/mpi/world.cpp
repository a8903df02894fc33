#include "tutti/comm/world.hpp"

#include "tutti/base/error.hpp"
#include "tutti/base/log.hpp"
#include "tutti/base/process.hpp"
#include "tutti/comm/launcher.hpp"

#include "../arguments.hpp"
#include "../node_memory.hpp"
#include "mpi_calls.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <climits>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>

namespace tutti::mpi {
namespace {

enum class Extent { whole_job, some_ranks };

constexpr std::size_t kPieceBytes = std::size_t{1} << 30;  // MPI counts with int

// A barrier in which waiting ranks sleep. Used before MPI collectives that have no non-blocking form, since those spin.
void sleeping_barrier(MPI_Comm comm) {
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Ibarrier(comm, &request));
  wait_for(request, kMaxArrivalSleep);
}

MPI_Comm duplicate(MPI_Comm comm) {
  sleeping_barrier(comm);
  MPI_Comm copy = MPI_COMM_NULL;
  check(MPI_Comm_dup(comm, &copy));
  return copy;
}

std::string processor_name() {
  std::array<char, MPI_MAX_PROCESSOR_NAME + 1> name{};
  int length = 0;
  check(MPI_Get_processor_name(name.data(), &length));
  return {name.data(), static_cast<std::size_t>(length)};
}

// MPICH's launcher loses what it has not read from the pipe of a rank that aborts, such as the error message. Waits for
// it, a second at most.
void await_reader_of_stderr() noexcept {
  struct stat status {};
  if (::fstat(STDERR_FILENO, &status) != 0 || !S_ISFIFO(status.st_mode)) return;
  constexpr int kTries = 200;
  int unread = 0;
  for (int i = 0; i < kTries && ::ioctl(STDERR_FILENO, FIONREAD, &unread) == 0 && unread > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

class MpiWorld final : public World {
 public:
  // Takes ownership of `comm`. Collective.
  MpiWorld(MPI_Comm comm, Extent extent) : World(processor_name()), comm_(comm), extent_(extent) {
    check(MPI_Comm_rank(comm_, &rank_));
    check(MPI_Comm_size(comm_, &size_));
    sleeping_barrier(comm_);
    check(MPI_Comm_split_type(comm_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &node_));
    check(MPI_Comm_rank(node_, &local_rank_));
    check(MPI_Comm_size(node_, &local_size_));
  }
  ~MpiWorld() override { static_cast<void>(max_.release()); }  // leaked, since MPI may still write to it
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;

  std::string description() const override { return mpi_library_version(); }

  bool all_true(bool mine) override {
    const CollectiveScope here(collectives());
    int all = mine ? 1 : 0;
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Iallreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_LAND, comm_, &request));
    wait_for(request, kMaxArrivalSleep);
    return all != 0;
  }

  void start_max(std::int64_t mine) override {
    if (max_) throw Error(ErrorSource::internal, "start_max is already pending");
    max_ = std::make_unique<std::int64_t>(mine);
    check(MPI_Iallreduce(MPI_IN_PLACE, max_.get(), 1, MPI_INT64_T, MPI_MAX, comm_, &max_request_));
  }

  // Uses the short sleep, since all ranks have started the operation or are about to.
  std::int64_t finish_max() override {
    if (!max_) throw Error(ErrorSource::internal, "finish_max without a start_max");
    const CollectiveScope here(collectives());
    wait_for(max_request_, kMaxTransferSleep);
    return *std::exchange(max_, nullptr);
  }

  void barrier() override {
    const CollectiveScope here(collectives());
    sleeping_barrier(comm_);
  }

  void broadcast(std::span<std::byte> bytes, int root) override {
    const CollectiveScope here(collectives());
    require_same_broadcast(bytes.size(), root);
    while (!bytes.empty()) {
      const std::span<std::byte> piece = bytes.first(std::min(bytes.size(), kPieceBytes));
      MPI_Request request = MPI_REQUEST_NULL;
      check(MPI_Ibcast(piece.data(), static_cast<int>(piece.size()), MPI_BYTE, root, comm_, &request));
      wait_for(request, kMaxTransferSleep);
      bytes = bytes.subspan(piece.size());
    }
  }

  std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine) override {
    const CollectiveScope here(collectives());
    const auto ranks = static_cast<std::size_t>(size_);
    const std::uint64_t length = mine.size();
    std::vector<std::uint64_t> lengths(ranks);
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Iallgather(&length, 1, MPI_UINT64_T, lengths.data(), 1, MPI_UINT64_T, comm_, &request));
    wait_for(request, kMaxArrivalSleep);

    const std::uint64_t total = std::reduce(lengths.begin(), lengths.end(), std::uint64_t{0});
    if (total > INT_MAX) {
      throw Error(ErrorSource::internal,
                  fmt::format("all_gather of {} bytes in total; the limit is 2 GiB, use broadcast", total))
          .on_all_ranks();
    }
    std::vector<int> counts(lengths.begin(), lengths.end());
    std::vector<int> offsets(ranks);
    std::exclusive_scan(counts.begin(), counts.end(), offsets.begin(), 0);
    std::vector<std::byte> all(total);
    check(MPI_Iallgatherv(mine.data(), static_cast<int>(length), MPI_BYTE, all.data(), counts.data(), offsets.data(),
                          MPI_BYTE, comm_, &request));
    wait_for(request, kMaxTransferSleep);

    std::vector<std::vector<std::byte>> by_rank;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const auto begin = all.begin() + offsets[rank];
      by_rank.emplace_back(begin, begin + counts[rank]);
    }
    return by_rank;
  }

  GrowingMemory begin_node_memory() override {
    const bool shares = local_size_ > 1;  // a single rank on its host does not need /dev/shm
    std::optional<NodeFile> created;
    std::array<char, 32> name{};
    run_or_throw_on_all(*this, [&] {
      if (shares && local_rank_ == 0) created.emplace().name().copy(name.data(), name.size() - 1);
    });
    broadcast_on_node(name);
    std::optional<GrowingMemory> memory;
    run_or_throw_on_all(*this, [&] {
      memory.emplace(created ? created->memory() : shares ? open_node_file(name.data()) : GrowingMemory());
    });
    created.reset();
    node_barrier();  // no rank returns before the name is removed
    return std::move(*memory);
  }

  Buffer share(GrowingMemory memory) override {
    Buffer shared;
    run_or_throw_on_all(*this, [&] {
      if (local_rank_ == 0) shared = memory.take();
    });
    std::array<std::uint64_t, 1> bytes{shared.bytes()};
    broadcast_on_node(bytes);
    run_or_throw_on_all(*this, [&] {
      if (local_rank_ == 0) return;
      memory.resize(bytes[0]);
      shared = memory.take();
    });
    return shared;
  }

  void node_barrier() override {
    const CollectiveScope here(collectives());
    sleeping_barrier(node_);
  }

  std::unique_ptr<World> split(int color) override {
    const CollectiveScope here(collectives());
    sleeping_barrier(comm_);
    MPI_Comm group = MPI_COMM_NULL;
    check(MPI_Comm_split(comm_, color < 0 ? MPI_UNDEFINED : color, rank_, &group));
    if (group == MPI_COMM_NULL) return nullptr;
    auto made = std::make_unique<MpiWorld>(group, Extent::some_ranks);
    made->set_collective_counter(collectives());
    return made;
  }

  [[noreturn]] void abort(int status) noexcept override {
    int closed = 0;
    await_reader_of_stderr();
    // If MPI_Abort fails, at least this process exits.
    if (MPI_Finalized(&closed) == MPI_SUCCESS && closed == 0) MPI_Abort(MPI_COMM_WORLD, status);
    std::_Exit(status);
  }

  void close() override {
    const CollectiveScope here(collectives());
    if (max_) finish_max();
    sleeping_barrier(comm_);
    check(MPI_Comm_free(&node_));
    check(MPI_Comm_free(&comm_));
    if (extent_ == Extent::whole_job) check(MPI_Finalize());
  }

  MPI_Comm native() const { return comm_; }

 private:
  // From local rank 0.
  template <class Value, std::size_t Count>
  void broadcast_on_node(std::array<Value, Count>& values) {
    const CollectiveScope here(collectives());
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Ibcast(values.data(), sizeof values, MPI_BYTE, 0, node_, &request));
    wait_for(request, kMaxArrivalSleep);
  }

  // This also synchronizes the ranks, so that the following transfer needs no long sleeps.
  void require_same_broadcast(std::size_t bytes, int root) {
    const auto length = static_cast<std::int64_t>(bytes);
    std::array<std::int64_t, 4> extremes{length, -length, root, -root};
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Iallreduce(MPI_IN_PLACE, extremes.data(), static_cast<int>(extremes.size()), MPI_INT64_T, MPI_MAX, comm_,
                         &request));
    wait_for(request, kMaxArrivalSleep);
    const auto [longest, minus_shortest, last_root, minus_first_root] = extremes;
    if (longest != -minus_shortest || last_root != -minus_first_root) {
      throw Error(ErrorSource::internal, fmt::format("ranks called broadcast with different arguments: {} to {} bytes, "
                                                     "root {} to {}",
                                                     -minus_shortest, longest, -minus_first_root, last_root))
          .on_all_ranks();
    }
    if (root < 0 || root >= size_) {
      throw Error(ErrorSource::internal, fmt::format("broadcast from rank {} in a world of {} ranks", root, size_))
          .on_all_ranks();
    }
  }

  MPI_Comm comm_;
  MPI_Comm node_ = MPI_COMM_NULL;  // this host's ranks
  Extent extent_;
  std::unique_ptr<std::int64_t> max_;  // between start_max and finish_max
  MPI_Request max_request_ = MPI_REQUEST_NULL;
};

// In MPI_Init and MPI_Finalize, Open MPI waits in its own loop, which must yield if there are more ranks than cores.
// (This also applies to ranks bound to one core each, where it does no harm.)
void enable_yield_if_oversubscribed() {
  const auto cores = std::ssize(allowed_cores());
  if (cores > 0 && launched_local_size().value_or(1) > cores) ::setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
}

// Makes Open MPI send our messages eagerly over TCP. With its rendezvous protocol the network would be idle during the
// handshakes.
void raise_tcp_eager_limit() {
  ::setenv("OMPI_MCA_btl_tcp_eager_limit", "1048576", 0);
  ::setenv("OMPI_MCA_btl_tcp_rndv_eager_limit", "1048576", 0);
  ::setenv("OMPI_MCA_btl_tcp_max_send_size", "1048577", 0);
}

void require_full_threads(int provided) {
  if (provided >= MPI_THREAD_MULTIPLE) return;
  check(MPI_Finalize());
  throw Error(ErrorSource::usage, fmt::format("{} gives thread support {}, and MPI_THREAD_MULTIPLE ({}) is needed; "
                                              "use a build of the MPI library with full thread support",
                                              mpi_library_version(), provided, int{MPI_THREAD_MULTIPLE}))
      .on_all_ranks();
}

bool is_open_mpi(const std::string& library) { return library.starts_with("Open MPI"); }

std::string launchers_of(const std::string& library) {
  return fmt::format("start them with the mpiexec of that library, or with srun --mpi={} if `srun --mpi=list` lists it",
                     is_open_mpi(library) ? "pmix" : "pmi2");
}

// Without PMIx, Open MPI terminates the process in MPI_Init with unhelpful advice, so this warns before.
void warn_missing_pmix() {
  const std::string library = mpi_library_version();
  if (!is_open_mpi(library) || !started_by_slurm_without_pmix() || launcher_rank() != 0) return;
  write_stderr_line(fmt::format("{}: srun started {} tasks without PMIx. If {} fails to start: {}", program_name(),
                                launched_size().value_or(0), library, launchers_of(library)));
}

// The launcher of another MPI library starts the requested number of processes, but each of them would see itself as
// the only rank and train alone.
void require_own_launcher() {
  int size = 1;
  check(MPI_Comm_size(MPI_COMM_WORLD, &size));
  const int launched = launched_size().value_or(size);
  if (size > 1 || launched <= 1) return;
  const std::string library = mpi_library_version();
  check(MPI_Finalize());
  throw Error(ErrorSource::usage, fmt::format("{} started {} processes, but {} sees only this one: {}", launcher_name(),
                                              launched, library, launchers_of(library)));
}

}  // namespace

MPI_Comm duplicate_communicator(World& world) {
  const auto* over_mpi = dynamic_cast<const MpiWorld*>(&world);
  if (over_mpi == nullptr) {
    throw Error(ErrorSource::internal,
                fmt::format("a communicator over MPI needs a world over MPI, not '{}'; use the solo communicator "
                            "for one rank",
                            world.description()));
  }
  const CollectiveScope here(world.collectives());
  return duplicate(over_mpi->native());
}

}  // namespace tutti::mpi

namespace tutti {

std::unique_ptr<World> make_mpi_world() {
  int already = 0;
  mpi::check(MPI_Initialized(&already));
  if (already != 0) throw Error(ErrorSource::internal, "MPI can be initialized only once per process");

  mpi::enable_yield_if_oversubscribed();
  mpi::warn_missing_pmix();
  mpi::raise_tcp_eager_limit();
  int provided = MPI_THREAD_SINGLE;
  mpi::check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided));
  mpi::check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  mpi::check(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
  mpi::require_full_threads(provided);
  mpi::require_own_launcher();
  return std::make_unique<mpi::MpiWorld>(mpi::duplicate(MPI_COMM_WORLD), mpi::Extent::whole_job);
}

}  // namespace tutti
