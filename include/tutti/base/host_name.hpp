#pragma once
// What this host is called in messages and in the names of its files.

#include <string>

namespace tutti {

std::string host_name();

}  // namespace tutti
