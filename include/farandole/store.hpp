// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "farandole/result.hpp"

namespace farandole {

/// Where the ranks of a job leave each other short values before they are connected: keys with
/// bytes. Job uses one to find rank 0. Derive from it to use what another library has.
///
/// Threads   any.
/// Errors    kTimedOut when a value does not come in time; what else went wrong as any other kind.
/// Blocking  get() until the value is there or `timeout` has passed. set() and add() may wait for
///           the store itself, and must return in bounded time.
class Store {
 public:
  /// Who can read and change what is in it.
  enum class Reach : std::uint8_t {
    kProcess,  // threads of this process
    kUser,     // processes of this user
    kShared,   // others too
  };

  virtual ~Store() = default;
  virtual Result<void> set(const std::string& key, std::string_view value) = 0;
  virtual Result<std::string> get(const std::string& key, std::chrono::milliseconds timeout) = 0;
  /// Adds to the number under `key`, 0 at first, and returns the sum. get() gives its digits.
  virtual Result<std::int64_t> add(const std::string& key, std::int64_t amount) = 0;
  /// kShared unless it is known to be less: a secret is put only into a store of kProcess or kUser.
  virtual Reach reach() const { return Reach::kShared; }
  /// For messages: "the files in /scratch/job".
  virtual std::string name() const = 0;
};

/// In the memory of this process, for ranks that are threads. Reach::kProcess.
class MemoryStore final : public Store {
 public:
  MemoryStore();
  ~MemoryStore() override;
  Result<void> set(const std::string& key, std::string_view value) override;
  Result<std::string> get(const std::string& key, std::chrono::milliseconds timeout) override;
  Result<std::int64_t> add(const std::string& key, std::int64_t amount) override;
  Reach reach() const override { return Reach::kProcess; }
  std::string name() const override { return "the memory of this process"; }

 private:
  struct Values;
  std::unique_ptr<Values> values_;
};

/// One file per key in a folder that all ranks see, for instance over NFS. Reach::kUser if the
/// folder is this user's own and its mode lets in nobody else (0700), else kShared. The files stay
/// there; the folder is the caller's to remove.
///
/// Blocking  get() looks again every few milliseconds, 50 at most.
class FileStore final : public Store {
 public:
  /// Makes the folder, with mode 0700, if there is none.
  /// Errors    kInvalidArgument naming the folder if it cannot be made or used.
  static Result<std::shared_ptr<FileStore>> open(const std::filesystem::path& folder);
  ~FileStore() override;
  FileStore(const FileStore&) = delete;
  FileStore& operator=(const FileStore&) = delete;

  Result<void> set(const std::string& key, std::string_view value) override;
  Result<std::string> get(const std::string& key, std::chrono::milliseconds timeout) override;
  Result<std::int64_t> add(const std::string& key, std::int64_t amount) override;
  Reach reach() const override { return reach_; }
  std::string name() const override { return "the files in " + folder_.string(); }

 private:
  FileStore(std::filesystem::path folder, int descriptor, Reach reach)
      : folder_(std::move(folder)), descriptor_(descriptor), reach_(reach) {}

  const std::filesystem::path folder_;
  const int descriptor_;  // of the folder
  const Reach reach_;
};

}  // namespace farandole
