// Reads files like those of other programs, written here with HDF5 itself.

#include "tutti/storage/array_file.hpp"

#include "storage/hdf5/hdf5.hpp"
#include "support/reports.hpp"
#include "support/scratch_folder.hpp"
#include "support/thrown.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace tutti {
namespace {

using namespace hdf5;

class ForeignFile : public testing::Test {
 protected:
  void SetUp() override {
    file_ = FileHandle(check(H5Fcreate(path().c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT)));
  }

  std::string path() const { return folder_.file("foreign.h5"); }

  void add(const char* name, hid_t stored, hid_t native, const SpaceHandle& space, const void* data,
           hid_t properties = H5P_DEFAULT) {
    const DatasetHandle dataset(
        check(H5Dcreate2(file_.get(), name, stored, space.get(), H5P_DEFAULT, properties, H5P_DEFAULT)));
    if (data != nullptr) check(H5Dwrite(dataset.get(), native, H5S_ALL, H5S_ALL, H5P_DEFAULT, data));
  }

  void make_group(const std::string& name) {
    check(H5Gclose(check(H5Gcreate2(file_.get(), name.c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT))));
  }

  static SpaceHandle space(const std::vector<hsize_t>& extents) {
    return SpaceHandle(check(H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr)));
  }

  ArrayFile close_and_read() {
    check(H5Fclose(file_.release()));
    return ArrayFile(path());
  }

  FileHandle file_;

 private:
  ScratchFolder folder_;
};

TEST_F(ForeignFile, GivesTextsOfVariableAndOfFixedLength) {
  const TypeHandle variable(check(H5Tcopy(H5T_C_S1)));
  check(H5Tset_size(variable.get(), H5T_VARIABLE));
  const char* text = "of variable length";
  add("/variable", variable.get(), variable.get(), space({1}), &text);
  const char* nothing = nullptr;
  add("/none", variable.get(), variable.get(), SpaceHandle(check(H5Screate(H5S_SCALAR))), &nothing);

  const TypeHandle type(check(H5Tcopy(H5T_C_S1)));
  check(H5Tset_size(type.get(), 6));
  check(H5Tset_strpad(type.get(), H5T_STR_SPACEPAD));
  add("/spaces", type.get(), type.get(), space({1}), "ab    ");
  check(H5Tset_strpad(type.get(), H5T_STR_NULLPAD));
  add("/full", type.get(), type.get(), space({1}), "abcdef");
  add("/two", type.get(), type.get(), space({2}), "abcdefghijkl");

  const ArrayFile file = close_and_read();
  EXPECT_EQ(file.read_text("/variable"), "of variable length");
  EXPECT_EQ(file.read_text("/none"), "");
  EXPECT_EQ(file.read_text("/spaces"), "ab");
  EXPECT_EQ(file.read_text("/full"), "abcdef");
  EXPECT_THAT(thrown_by([&] { file.read_text("/two"); }).what(), mentions("expected exactly one string"));
}

TEST_F(ForeignFile, GivesChunkedCompressedAndBigEndianArrays) {
  const std::vector<std::int32_t> values{1, -2, 3, -4, 5, -6};
  const PropertiesHandle properties(check(H5Pcreate(H5P_DATASET_CREATE)));
  const hsize_t chunk = 4;
  check(H5Pset_chunk(properties.get(), 1, &chunk));
  check(H5Pset_deflate(properties.get(), 1));
  add("/packed", H5T_STD_I32BE, H5T_NATIVE_INT32, space({6}), values.data(), properties.get());
  const ArrayFile file = close_and_read();
  std::vector<std::int32_t> read(6);
  file.read("/packed", {6}, std::span<std::int32_t>(read));
  EXPECT_EQ(read, values);
}

TEST_F(ForeignFile, IsRefusedWhereSignOrKindDiffer) {
  add("/unsigned", H5T_STD_U32LE, H5T_NATIVE_UINT32, space({1}), nullptr);
  add("/integer", H5T_STD_I32LE, H5T_NATIVE_INT32, space({1}), nullptr);
  const ArrayFile file = close_and_read();
  std::vector<std::int32_t> integers(1);
  std::vector<float> floats(1);
  EXPECT_THAT(thrown_by([&] { file.read("/unsigned", {1}, std::span<std::int32_t>(integers)); }).what(),
              mentions("not of type i32"));
  EXPECT_THAT(thrown_by([&] { file.read("/integer", {1}, std::span<float>(floats)); }).what(),
              mentions("not of type f32"));
}

TEST_F(ForeignFile, IsRefusedWhereAnArrayHasTooManyDimensionsOrNone) {
  add("/five", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, space({1, 1, 1, 1, 1}), nullptr);
  add("/null", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, SpaceHandle(check(H5Screate(H5S_NULL))), nullptr);
  const ArrayFile file = close_and_read();
  EXPECT_THAT(thrown_by([&] { file.shape("/five"); }).what(), mentions("5 dimensions instead of 0 to 4"));
  EXPECT_EQ(thrown_by([&] { file.shape("/null"); }).source(), ErrorSource::input);
}

TEST_F(ForeignFile, IsRefusedWhereGroupsHaveSecondNames) {
  make_group("/circle");
  check(H5Lcreate_hard(file_.get(), "/circle", file_.get(), "/circle/again", H5P_DEFAULT, H5P_DEFAULT));
  for (int level = 0; level < 12; ++level) {
    const std::string group = fmt::format("/levels{}", level);
    make_group(group);
    if (level == 0) continue;
    for (int link = 0; link < 8; ++link) {
      const std::string name = fmt::format("{}/{}", group, link);
      const std::string target = fmt::format("/levels{}", level - 1);
      check(H5Lcreate_hard(file_.get(), target.c_str(), file_.get(), name.c_str(), H5P_DEFAULT, H5P_DEFAULT));
    }
  }
  const ArrayFile file = close_and_read();
  EXPECT_THAT(thrown_by([&] { file.names("/circle"); }).what(), mentions("'/circle/again/again' has a second name"));
  EXPECT_THAT(thrown_by([&] { file.names("/levels11"); }).what(), mentions("has a second name"));
}

TEST_F(ForeignFile, IsRefusedWhereLinksLeadToOtherNamesOrFiles) {
  const float value = 7;
  add("/array", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, space({1}), &value);
  make_group("/group");
  check(H5Lcreate_soft("/nowhere", file_.get(), "/dangling", H5P_DEFAULT, H5P_DEFAULT));
  check(H5Lcreate_soft("/array", file_.get(), "/group/soft", H5P_DEFAULT, H5P_DEFAULT));
  check(H5Lcreate_external("foreign.h5", "/array", file_.get(), "/external", H5P_DEFAULT, H5P_DEFAULT));
  const ArrayFile file = close_and_read();
  std::vector<float> read(1);
  for (const std::string name : {"/dangling", "/group/soft", "/external"}) {
    const auto refuses = [&](const auto& action) {
      const Error error = thrown_by(action);
      EXPECT_EQ(error.source(), ErrorSource::input);
      EXPECT_THAT(error.what(), mentions("is a link to another name or file")) << name;
    };
    refuses([&] { file.shape(name); });
    refuses([&] { file.contains(name); });
    refuses([&] { file.read_text(name); });
    refuses([&] { file.read(name, {1}, std::span<float>(read)); });
    refuses([&] { file.names(name.starts_with("/group") ? "/group" : "/"); });
  }
}

TEST_F(ForeignFile, IsRefusedWhereValuesAreInAnotherFile) {
  const PropertiesHandle external(check(H5Pcreate(H5P_DATASET_CREATE)));
  check(H5Pset_external(external.get(), "/etc/hostname", 0, 4));
  add("/external", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, space({1}), nullptr, external.get());
  const TypeHandle text(check(H5Tcopy(H5T_C_S1)));
  check(H5Tset_size(text.get(), 4));
  add("/text", text.get(), text.get(), space({1}), nullptr, external.get());
  const PropertiesHandle linked(check(H5Pcreate(H5P_DATASET_CREATE)));
  const SpaceHandle one = space({1});
  check(H5Pset_virtual(linked.get(), one.get(), "other.h5", "/array", one.get()));
  add("/virtual", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, one, nullptr, linked.get());
  const ArrayFile file = close_and_read();
  std::vector<float> read(1);
  for (const char* name : {"/external", "/virtual"}) {
    EXPECT_THAT(thrown_by([&] { file.read(name, {1}, std::span<float>(read)); }).what(),
                mentions("its values are stored in another file"));
  }
  EXPECT_THAT(thrown_by([&] { file.read_text("/text"); }).what(), mentions("its values are stored in another file"));
}

TEST_F(ForeignFile, IsRefusedWhereItAnnouncesMoreThanItCanContain) {
  const TypeHandle text(check(H5Tcopy(H5T_C_S1)));
  check(H5Tset_size(text.get(), (std::size_t{1} << 32) - 1));
  const PropertiesHandle packed(check(H5Pcreate(H5P_DATASET_CREATE)));
  const hsize_t chunk = hsize_t{1} << 29;
  check(H5Pset_chunk(packed.get(), 1, &chunk));
  check(H5Pset_deflate(packed.get(), 1));
  add("/text", text.get(), text.get(), space({1}), nullptr);
  add("/array", H5T_STD_I32LE, H5T_NATIVE_INT32, space({1'000'000}), nullptr);
  const hsize_t ten = 10;
  const hsize_t unlimited = H5S_UNLIMITED;
  const SpaceHandle growing(check(H5Screate_simple(1, &ten, &unlimited)));
  add("/labels", H5T_STD_I32LE, H5T_NATIVE_INT32, growing, nullptr, packed.get());
  const ArrayFile file = close_and_read();
  EXPECT_THAT(thrown_by([&] { file.read_text("/text"); }).what(), mentions("do not fit into a file of"));
  EXPECT_THAT(thrown_by([&] { file.shape("/array"); }).what(), mentions("do not fit into a file of"));
  EXPECT_THAT(thrown_by([&] { file.shape("/labels"); }).what(), mentions("are larger than the array of 40"));
}

}  // namespace
}  // namespace tutti
