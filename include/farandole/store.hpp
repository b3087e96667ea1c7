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

/// A key-value store in which the ranks of a job exchange short values before they are connected.
/// Job uses one to find rank 0. Derive from it to use the store of another library.
///
/// Threads   any.
/// Errors    kTimedOut when a value does not come in time; any other kind for other failures.
/// Blocking  get() until the value is there or `timeout` has passed. set() and add() may wait for
///           the store itself, and must return in bounded time.
class Store {
 public:
  /// Who can read and change the contents.
  enum class Reach : std::uint8_t {
    kProcess,  // threads of this process
    kUser,     // processes of this user
    kShared,   // others too
  };

  virtual ~Store() = default;
  virtual Result<void> set(const std::string& key, std::string_view value) = 0;
  virtual Result<std::string> get(const std::string& key, std::chrono::milliseconds timeout) = 0;
  /// Adds `amount` to the number under `key`, at first 0, and returns the sum. get() returns its
  /// decimal digits.
  virtual Result<std::int64_t> add(const std::string& key, std::int64_t amount) = 0;
  /// kShared unless the reach is known to be smaller. A secret is put only into a store of kProcess
  /// or kUser, or if Job::trust_store is set.
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

/// One file per key in a folder that all ranks see, for instance over NFS. Reach::kUser if this
/// user owns the folder and its mode lets in nobody else (0700), else kShared. The files stay; the
/// caller removes the folder.
///
/// Blocking  get() looks for the file every 1 to 50 ms.
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
