// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <map>
#include <string>
#include <vector>

extern char** environ;

namespace farandole::test {

/// The environment is exactly `variables`, and afterwards what it was.
/// Threads   one at a time, with no other thread about.
class Environment {
 public:
  explicit Environment(const std::map<std::string, std::string>& variables) {
    for (char** entry = environ; *entry != nullptr; ++entry) saved_.emplace_back(*entry);
    replace_by(variables);
  }
  ~Environment() {
    clearenv();
    for (const std::string& entry : saved_) {
      const std::size_t sign = entry.find('=');
      setenv(entry.substr(0, sign).c_str(), entry.c_str() + sign + 1, 1);
    }
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

  static void replace_by(const std::map<std::string, std::string>& variables) {
    clearenv();
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  }

 private:
  std::vector<std::string> saved_;
};

}  // namespace farandole::test
