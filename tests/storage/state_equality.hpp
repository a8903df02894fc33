#pragma once
// Whether two training states are equal to the last bit, and what differs if not.

#include "tutti/storage/train_state.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

namespace tutti {

inline void expect_equal_bits(const std::vector<NamedArray>& found, const std::vector<NamedArray>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].name, expected[i].name);
    EXPECT_EQ(found[i].shape, expected[i].shape) << found[i].name;
    ASSERT_EQ(found[i].values.size(), expected[i].values.size()) << found[i].name;
    const std::size_t bytes = found[i].values.size() * sizeof(float);
    EXPECT_EQ(std::memcmp(found[i].values.data(), expected[i].values.data(), bytes), 0) << found[i].name;
  }
}

inline void expect_equal_bits(const TrainState& found, const TrainState& expected) {
  EXPECT_EQ(found.progress, expected.progress);
  expect_equal_bits(found.parameters, expected.parameters);
  expect_equal_bits(found.statistics, expected.statistics);
  expect_equal_bits(found.optimizer, expected.optimizer);
  expect_equal_bits(found.exchange, expected.exchange);
  expect_equal_bits(found.averages, expected.averages);
  EXPECT_EQ(found.configuration, expected.configuration);
  EXPECT_EQ(found.command_line, expected.command_line);
  EXPECT_EQ(found.model, expected.model);
  EXPECT_EQ(found.versions, expected.versions);
  EXPECT_EQ(found.choices, expected.choices);
  EXPECT_EQ(found.data, expected.data);
  EXPECT_EQ(found.data_digest, expected.data_digest);
}

}  // namespace tutti
