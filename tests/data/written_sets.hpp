#pragma once
// Data set files for tests: the bytes of idx files, CIFAR records and gzip streams.

#include "tutti/data/open_data.hpp"

#include <gtest/gtest.h>
#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <numeric>
#include <string>
#include <vector>

namespace tutti::testing_support {

using Bytes = std::vector<std::uint8_t>;

inline void append_word(Bytes& bytes, std::uint32_t word) {
  for (const int shift : {24, 16, 8, 0}) bytes.push_back(static_cast<std::uint8_t>(word >> shift));
}

// A header of these words, then `count` bytes counting up from `first`.
inline Bytes idx_file(std::initializer_list<std::uint32_t> words, std::size_t count, std::uint8_t first = 0) {
  Bytes bytes;
  for (const std::uint32_t word : words) append_word(bytes, word);
  for (std::size_t i = 0; i < count; ++i) bytes.push_back(static_cast<std::uint8_t>(first + i));
  return bytes;
}

inline Bytes idx_labels(const Bytes& labels) {
  Bytes bytes = idx_file({0x801, static_cast<std::uint32_t>(labels.size())}, 0);
  bytes.insert(bytes.end(), labels.begin(), labels.end());
  return bytes;
}

// One record for each label, every pixel of it `first_pixel` plus the record's number.
inline Bytes cifar_file(const Bytes& labels, std::uint8_t first_pixel = 0) {
  Bytes bytes;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    bytes.push_back(labels[i]);
    bytes.insert(bytes.end(), 3072, static_cast<std::uint8_t>(first_pixel + i));
  }
  return bytes;
}

inline Bytes gzipped(const Bytes& content) {
  constexpr int kGzipWindow = 15 + 16;
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kGzipWindow, 8, Z_DEFAULT_STRATEGY), Z_OK);
  Bytes packed(deflateBound(&stream, static_cast<uLong>(content.size())));
  stream.next_in = const_cast<Bytef*>(content.data());
  stream.avail_in = static_cast<uInt>(content.size());
  stream.next_out = packed.data();
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

struct Contents {
  std::vector<std::uint8_t> images;
  std::vector<std::int32_t> labels;
};

// All pixels of all samples, one after another.
inline Contents contents_of(const Dataset& data) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(data.info().samples));
  std::iota(all.begin(), all.end(), 0);
  SampleBatch batch;
  data.read(all, batch);
  Contents contents{{}, batch.labels};
  for (const ImageView& image : batch.images) {
    contents.images.insert(contents.images.end(), image.pixels, image.pixels + image.shape.elements());
  }
  return contents;
}

inline OwnedData open_named(const std::string& train, const std::string& test = "") {
  return open_data({.train = train, .test = test});
}

}  // namespace tutti::testing_support
