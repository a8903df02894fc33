#pragma once
// Commands that are programs of their own, mostly in Python, found as git finds its commands: `trainer data fetch` runs
// trainer-data-fetch out of the folder libexec/tutti beside the program or its library, or where it is installed.

#include "tutti/base/error.hpp"

#include <filesystem>
#include <string>
#include <vector>

namespace tutti {

struct Companion {
  std::string words;  // "data fetch"
  std::filesystem::path program;
};

// Empty where there is none.
std::filesystem::path companions_folder();
// All of them, by their words.
std::vector<Companion> find_companions();
// The first line of its documentation, without the words and the colon that it begins with.
std::string what_it_does(const Companion& companion);

// Replaces this process by the program, which finds this one's path in TUTTI_TRAINER, how it was called in TUTTI_CALL,
// and `input` in its stdin unless that is empty. Companions work alone: returns `done` on ranks other than 0. To be
// called before MPI is initialised. Throws an error that says what is missing.
ExitStatus become_companion(const std::filesystem::path& program, const std::vector<std::string>& words,
                            const std::string& input);

}  // namespace tutti
