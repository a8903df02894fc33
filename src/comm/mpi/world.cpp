#include "tutti/comm/world.hpp"

#include "tutti/base/error.hpp"
#include "tutti/base/log.hpp"
#include "tutti/base/process.hpp"

#include "../arguments.hpp"
#include "../node_memory.hpp"
#include "launcher.hpp"
#include "native.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

namespace tutti::mpi {
namespace {

enum class Extent { whole_job, some_ranks };

constexpr std::size_t kPieceBytes = std::size_t{1} << 30;  // MPI counts with int

// Collectives of the library that have no non-blocking form spin; so all ranks arrive first.
void arrive(MPI_Comm comm) {
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Ibarrier(comm, &request));
  wait_for(request, kUntilArrival);
}

MPI_Comm duplicate(MPI_Comm comm) {
  arrive(comm);
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

class MpiWorld final : public World {
 public:
  // Takes over `comm`, which nobody else uses. Collective.
  MpiWorld(MPI_Comm comm, Extent extent) : comm_(comm), extent_(extent), host_(processor_name()) {
    check(MPI_Comm_rank(comm_, &rank_));
    check(MPI_Comm_size(comm_, &size_));
    arrive(comm_);
    check(MPI_Comm_split_type(comm_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &node_));
    check(MPI_Comm_rank(node_, &local_rank_));
    check(MPI_Comm_size(node_, &local_size_));
  }
  ~MpiWorld() override { static_cast<void>(greatest_.release()); }  // the library may still write there
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int local_rank() const override { return local_rank_; }
  int local_size() const override { return local_size_; }
  const std::string& host() const override { return host_; }
  std::string description() const override { return library_name(); }

  bool agree(bool mine) override;
  void begin_greatest(std::int64_t mine) override;
  std::int64_t end_greatest() override;
  void barrier() override {
    const CollectiveScope here(collectives());
    arrive(comm_);
  }
  void broadcast(std::span<std::byte> bytes, int root) override;
  std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine) override;
  Buffer node_memory(std::size_t bytes) override;
  void node_barrier() override {
    const CollectiveScope here(collectives());
    arrive(node_);
  }
  std::unique_ptr<World> split(int colour) override;
  [[noreturn]] void abort(int status) noexcept override;
  void close() override;

  MPI_Comm native() const { return comm_; }

 private:
  void require_same_broadcast(std::size_t bytes, int root);

  MPI_Comm comm_;
  MPI_Comm node_ = MPI_COMM_NULL;  // this host's ranks
  Extent extent_;
  std::string host_;
  int rank_ = 0;
  int size_ = 1;
  int local_rank_ = 0;
  int local_size_ = 1;
  std::unique_ptr<std::int64_t> greatest_;  // while it is being found
  MPI_Request finding_ = MPI_REQUEST_NULL;
};

bool MpiWorld::agree(bool mine) {
  const CollectiveScope here(collectives());
  int all = mine ? 1 : 0;
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Iallreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_LAND, comm_, &request));
  wait_for(request, kUntilArrival);
  return all != 0;
}

void MpiWorld::begin_greatest(std::int64_t mine) {
  if (greatest_) throw Error(ErrorSource::internal, "begin_greatest before the end of the one under way");
  greatest_ = std::make_unique<std::int64_t>(mine);
  check(MPI_Iallreduce(MPI_IN_PLACE, greatest_.get(), 1, MPI_INT64_T, MPI_MAX, comm_, &finding_));
}

// All ranks have begun, or are about to: none may sleep long.
std::int64_t MpiWorld::end_greatest() {
  if (!greatest_) throw Error(ErrorSource::internal, "end_greatest without a begin_greatest");
  const CollectiveScope here(collectives());
  wait_for(finding_, kUntilMoved);
  return *std::exchange(greatest_, nullptr);
}

// Also lets all ranks arrive, so that the data can then move without long sleeps.
void MpiWorld::require_same_broadcast(std::size_t bytes, int root) {
  const auto length = static_cast<std::int64_t>(bytes);
  std::array<std::int64_t, 4> extremes{length, -length, root, -root};
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Iallreduce(MPI_IN_PLACE, extremes.data(), static_cast<int>(extremes.size()), MPI_INT64_T, MPI_MAX, comm_,
                       &request));
  wait_for(request, kUntilArrival);
  const auto [longest, minus_shortest, last_root, minus_first_root] = extremes;
  if (longest != -minus_shortest || last_root != -minus_first_root) {
    throw Error(ErrorSource::internal, fmt::format("ranks disagree on a broadcast: {} to {} bytes from ranks {} to {}",
                                                   -minus_shortest, longest, -minus_first_root, last_root))
        .on_all_ranks();
  }
  if (root < 0 || root >= size_) {
    throw Error(ErrorSource::internal, fmt::format("broadcast from rank {} in a world of {} ranks", root, size_))
        .on_all_ranks();
  }
}

void MpiWorld::broadcast(std::span<std::byte> bytes, int root) {
  const CollectiveScope here(collectives());
  require_same_broadcast(bytes.size(), root);
  while (!bytes.empty()) {
    const std::span<std::byte> piece = bytes.first(std::min(bytes.size(), kPieceBytes));
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Ibcast(piece.data(), static_cast<int>(piece.size()), MPI_BYTE, root, comm_, &request));
    wait_for(request, kUntilMoved);
    bytes = bytes.subspan(piece.size());
  }
}

std::vector<std::vector<std::byte>> MpiWorld::all_gather(std::span<const std::byte> mine) {
  const CollectiveScope here(collectives());
  const auto ranks = static_cast<std::size_t>(size_);
  const std::uint64_t length = mine.size();
  std::vector<std::uint64_t> lengths(ranks);
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Iallgather(&length, 1, MPI_UINT64_T, lengths.data(), 1, MPI_UINT64_T, comm_, &request));
  wait_for(request, kUntilArrival);

  const std::uint64_t total = std::reduce(lengths.begin(), lengths.end(), std::uint64_t{0});
  if (total > INT_MAX) {
    throw Error(ErrorSource::internal,
                fmt::format("all_gather of {} bytes in all; it is for less than 2 GiB, use broadcast", total))
        .on_all_ranks();
  }
  std::vector<int> counts(lengths.begin(), lengths.end());
  std::vector<int> offsets(ranks);
  std::exclusive_scan(counts.begin(), counts.end(), offsets.begin(), 0);
  std::vector<std::byte> all(total);
  check(MPI_Iallgatherv(mine.data(), static_cast<int>(length), MPI_BYTE, all.data(), counts.data(), offsets.data(),
                        MPI_BYTE, comm_, &request));
  wait_for(request, kUntilMoved);

  std::vector<std::vector<std::byte>> by_rank;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const auto begin = all.begin() + offsets[rank];
    by_rank.emplace_back(begin, begin + counts[rank]);
  }
  return by_rank;
}

// What the others of a host must know to open what its local rank 0 has made.
struct NodeMemoryTicket {
  std::uint64_t bytes = 0;
  std::array<char, 32> name{};
};

Buffer MpiWorld::node_memory(std::size_t bytes) {
  std::optional<NodeMemory> memory;
  Buffer alone;  // a host's only rank needs nothing of /dev/shm
  run_agreed(*this, [&] {
    if (local_size_ == 1) {
      alone = allocate_host(bytes);
    } else if (local_rank_ == 0) {
      memory.emplace(bytes);
    }
  });
  NodeMemoryTicket ticket{.bytes = bytes};
  if (memory) memory->name().copy(ticket.name.data(), ticket.name.size() - 1);
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Ibcast(&ticket, sizeof ticket, MPI_BYTE, 0, node_, &request));
  wait_for(request, kUntilArrival);
  run_agreed(*this, [&] {
    if (local_rank_ != 0) memory.emplace(ticket.name.data(), ticket.bytes);
  });
  if (memory) memory->unname();
  node_barrier();  // no rank returns before the name is gone
  return memory ? memory->take() : std::move(alone);
}

std::unique_ptr<World> MpiWorld::split(int colour) {
  const CollectiveScope here(collectives());
  arrive(comm_);
  MPI_Comm group = MPI_COMM_NULL;
  check(MPI_Comm_split(comm_, colour < 0 ? MPI_UNDEFINED : colour, rank_, &group));
  if (group == MPI_COMM_NULL) return nullptr;
  auto made = std::make_unique<MpiWorld>(group, Extent::some_ranks);
  made->count_in(collectives());
  return made;
}

void MpiWorld::abort(int status) noexcept {
  int closed = 0;
  // Nothing can be done about a failing abort but to leave.
  if (MPI_Finalized(&closed) == MPI_SUCCESS && closed == 0) MPI_Abort(MPI_COMM_WORLD, status);
  std::_Exit(status);
}

void MpiWorld::close() {
  const CollectiveScope here(collectives());
  if (greatest_) end_greatest();
  arrive(comm_);
  check(MPI_Comm_free(&node_));
  check(MPI_Comm_free(&comm_));
  if (extent_ == Extent::whole_job) check(MPI_Finalize());
}

// In MPI_Init and MPI_Finalize the library waits by itself; where ranks outnumber cores it must yield. (A
// rank bound to a core of its own may count as such too, and loses nothing.)
void yield_when_crowded() {
  cpu_set_t usable;
  CPU_ZERO(&usable);
  if (::sched_getaffinity(0, sizeof usable, &usable) != 0) return;
  if (launched_local_size().value_or(1) > CPU_COUNT(&usable)) ::setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
}

// Over TCP Open MPI would first announce messages as long as those of sums, and have receivers ask for them, while the
// cable stands idle; such messages are sent straight away.
void send_long_messages_straight() {
  ::setenv("OMPI_MCA_btl_tcp_eager_limit", "1048576", 0);
  ::setenv("OMPI_MCA_btl_tcp_rndv_eager_limit", "1048576", 0);
  ::setenv("OMPI_MCA_btl_tcp_max_send_size", "1048577", 0);
}

void require_full_threads(int provided) {
  if (provided >= MPI_THREAD_MULTIPLE) return;
  check(MPI_Finalize());
  throw Error(ErrorSource::usage, fmt::format("{} gives thread support {}, and MPI_THREAD_MULTIPLE ({}) is needed; "
                                              "use a build of the MPI library with full thread support",
                                              library_name(), provided, int{MPI_THREAD_MULTIPLE}))
      .on_all_ranks();
}

bool is_open_mpi(const std::string& library) { return library.starts_with("Open MPI"); }

std::string launchers_of(const std::string& library) {
  return fmt::format(
      "start them with the mpiexec of that library, or with srun --mpi={} where `srun --mpi=list` names it",
      is_open_mpi(library) ? "pmix" : "pmi2");
}

// Open MPI ends a process to which srun does not speak as it expects by itself, with advice to build Slurm anew.
void note_deaf_start() {
  const std::string library = library_name();
  if (!is_open_mpi(library) || !mpi::started_by_slurm_without_pmix() || launcher_rank() != 0) return;
  write_stderr_line(fmt::format("{}: srun started {} tasks without PMIx. Should {} refuse to start here: {}",
                                program_name(), mpi::launched_size().value_or(0), library, launchers_of(library)));
}

// The launcher of another MPI starts as many lone processes as ranks were asked for, each of which would
// train alone.
void require_own_launcher() {
  int size = 1;
  check(MPI_Comm_size(MPI_COMM_WORLD, &size));
  const int launched = mpi::launched_size().value_or(size);
  if (size > 1 || launched <= 1) return;
  const std::string library = library_name();
  check(MPI_Finalize());
  throw Error(ErrorSource::usage, fmt::format("{} started {} processes, but {} sees only this one: {}",
                                              mpi::launcher_name(), launched, library, launchers_of(library)));
}

}  // namespace

MPI_Comm duplicate_communicator(World& world) {
  const auto* over_mpi = dynamic_cast<const MpiWorld*>(&world);
  if (over_mpi == nullptr) {
    throw Error(ErrorSource::internal,
                fmt::format("a communicator over MPI wants a world over MPI, not '{}'; one rank alone takes solo",
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
  if (already != 0) throw Error(ErrorSource::internal, "MPI is initialised already; it can be once per process");

  mpi::yield_when_crowded();
  mpi::note_deaf_start();
  mpi::send_long_messages_straight();
  int provided = MPI_THREAD_SINGLE;
  mpi::check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided));
  mpi::check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  mpi::check(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
  mpi::require_full_threads(provided);
  mpi::require_own_launcher();
  return std::make_unique<mpi::MpiWorld>(mpi::duplicate(MPI_COMM_WORLD), mpi::Extent::whole_job);
}

}  // namespace tutti
