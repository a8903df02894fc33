#include "tutti/storage/row_file.hpp"

#include "tutti/base/error.hpp"
#include "tutti/storage/whole_file.hpp"

#include "../seal.hpp"
#include "check.hpp"
#include "new_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

namespace tutti {
namespace {

using namespace hdf5;

constexpr std::int64_t kChunkBytes = std::int64_t{8} << 20;

FileHandle create_without_locks(const std::string& path) {
  silence_traces();
  const PropertiesHandle access(check(H5Pcreate(H5P_FILE_ACCESS)));
  check(H5Pset_file_locking(access.get(), /*use_file_locking=*/false, /*ignore_when_disabled=*/true));
  check(H5Pset_libver_bounds(access.get(), H5F_LIBVER_EARLIEST, H5F_LIBVER_LATEST));
  return FileHandle(check(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.get())));
}

// One array of rows on its way: chunks are written whole, so that HDF5 keeps none of them.
class RowStream {
 public:
  RowStream(NewFile& file, const std::string& name, const Shape& shape)
      : name_(name),
        shape_(shape),
        row_bytes_(shape.without_first().elements()),
        chunk_rows_(std::clamp(kChunkBytes / row_bytes_, std::int64_t{1}, shape[0])),
        dataset_(file.add_rows(name, shape, chunk_rows_)) {}

  void append(std::span<const std::uint8_t> rows) {
    while (!rows.empty()) {
      const std::size_t room = static_cast<std::size_t>(chunk_rows_ * row_bytes_) - waiting_.size();
      const auto taken = rows.first(std::min(room, rows.size()));
      waiting_.insert(waiting_.end(), taken.begin(), taken.end());
      rows = rows.subspan(taken.size());
      if (taken.size() == room) write();
    }
  }

  void finish() {
    if (!waiting_.empty()) write();
    if (written_ != shape_[0]) {
      throw Error(ErrorSource::internal, fmt::format("'{}' of {} rows is given {}", name_, shape_[0], written_));
    }
  }

  void add_runs(std::vector<ByteRun>& runs) const {
    const SpaceHandle space(check(H5Dget_space(dataset_.get())));
    hsize_t chunks = 0;
    check(H5Dget_num_chunks(dataset_.get(), space.get(), &chunks));
    std::array<hsize_t, Shape::kMaxRank> offset{};
    for (hsize_t chunk = 0; chunk < chunks; ++chunk) {
      unsigned filters = 0;
      haddr_t address = 0;
      hsize_t bytes = 0;
      check(H5Dget_chunk_info(dataset_.get(), space.get(), chunk, offset.data(), &filters, &address, &bytes));
      runs.push_back({address, bytes});
    }
  }

 private:
  void write() {
    const std::int64_t rows = static_cast<std::int64_t>(waiting_.size()) / row_bytes_;
    if (rows * row_bytes_ != static_cast<std::int64_t>(waiting_.size()) || rows > shape_[0] - written_) {
      throw Error(ErrorSource::internal,
                  fmt::format("'{}' of {} rows is given more, or a piece of one", name_, shape_[0]));
    }
    std::array<hsize_t, Shape::kMaxRank> start{static_cast<hsize_t>(written_)};
    std::array<hsize_t, Shape::kMaxRank> extents{};
    const Shape block = shape_.with_first(rows);
    std::ranges::transform(block.extents(), extents.begin(), [](std::int64_t e) { return static_cast<hsize_t>(e); });
    const SpaceHandle to(check(H5Dget_space(dataset_.get())));
    check(H5Sselect_hyperslab(to.get(), H5S_SELECT_SET, start.data(), nullptr, extents.data(), nullptr));
    const SpaceHandle from(check(H5Screate_simple(block.rank(), extents.data(), nullptr)));
    check(H5Dwrite(dataset_.get(), H5T_NATIVE_UINT8, from.get(), to.get(), H5P_DEFAULT, waiting_.data()));
    written_ += rows;
    waiting_.clear();
  }

  std::string name_;
  Shape shape_;
  std::int64_t row_bytes_;
  std::int64_t chunk_rows_;
  DatasetHandle dataset_;
  std::vector<std::uint8_t> waiting_;
  std::int64_t written_ = 0;
};

}  // namespace

class RowFileWriter::File {
 public:
  explicit File(const std::string& path) : path_(path), whole_(path) {
    if (whole_.temporary().empty()) {
      throw Error(
          ErrorSource::save,
          fmt::format("cannot save '{}': it is no regular file, and HDF5 writes no other; choose another name", path));
    }
    saving([&] { file_ = std::make_unique<NewFile>(create_without_locks(whole_.temporary())); });
  }

  // Runs `action` in this thread's turn, with every failure of HDF5 reported as a file that cannot be saved.
  template <class Action>
  void saving(Action action) {
    const auto turn = take_turn();
    try {
      action();
    } catch (const Error& error) {
      if (error.source() != ErrorSource::hdf5) throw;
      throw Error(ErrorSource::save, fmt::format("cannot save '{}': HDF5: {}; check the space left on this file system "
                                                 "and your quota, or choose another folder",
                                                 path_, error.what()));
    }
  }

  NewFile& file() { return *file_; }
  void begin(const std::string& name, const Shape& shape) {
    finish_rows();
    rows_ = std::make_unique<RowStream>(*file_, name, shape);
  }
  void append(std::span<const std::uint8_t> rows) {
    if (rows_ == nullptr) throw Error(ErrorSource::internal, "rows of no array are appended");
    rows_->append(rows);
  }

  void keep() {
    saving([&] {
      finish_rows();
      FileHandle file = file_->release();
      check(H5Fflush(file.get(), H5F_SCOPE_GLOBAL));
      check(H5Fclose(file.release()));
    });
    whole_.append(seal_for(whole_.temporary(), std::move(runs_)));
    whole_.keep();
  }

 private:
  void finish_rows() {
    if (rows_ == nullptr) return;
    rows_->finish();
    rows_->add_runs(runs_);
    rows_ = nullptr;
  }

  std::string path_;
  WholeFile whole_;
  std::unique_ptr<NewFile> file_;
  std::unique_ptr<RowStream> rows_;
  std::vector<ByteRun> runs_;
};

RowFileWriter::RowFileWriter(const std::string& path) : file_(std::make_unique<File>(path)) {}
RowFileWriter::~RowFileWriter() = default;

void RowFileWriter::add(const std::string& name, const Shape& shape, std::span<const double> values) {
  file_->saving([&] { file_->file().add_values(name, shape, values); });
}
void RowFileWriter::add(const std::string& name, const Shape& shape, std::span<const std::int32_t> values) {
  file_->saving([&] { file_->file().add_values(name, shape, values); });
}
void RowFileWriter::add_text(const std::string& name, const std::string& text) {
  file_->saving([&] { file_->file().add_text(name, text); });
}
void RowFileWriter::begin_rows(const std::string& name, const Shape& shape) {
  file_->saving([&] { file_->begin(name, shape); });
}
void RowFileWriter::append_rows(std::span<const std::uint8_t> rows) {
  file_->saving([&] { file_->append(rows); });
}
void RowFileWriter::keep() { file_->keep(); }

}  // namespace tutti
