#pragma once
// A made-up tree of /proc and /sys in a temporary folder, for whatever reads the system below a root.

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace test {

class fake_root {
  public:
    fake_root() {
        std::string pattern = (std::filesystem::temp_directory_path() / "trireme-root-XXXXXX").string();
        if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder");
        path_ = pattern;
    }
    /// Files as "path=content|path=content", a newline written as \n.
    explicit fake_root(std::string_view files) : fake_root() {
        while (!files.empty()) {
            const auto bar = files.find('|');
            const auto one = files.substr(0, bar);
            files = bar == files.npos ? std::string_view{} : files.substr(bar + 1);
            const auto equals = one.find('=');
            std::string content(one.substr(equals + 1));
            for (std::size_t at; (at = content.find("\\n")) != content.npos;) content.replace(at, 2, "\n");
            put(std::string(one.substr(0, equals)), content);
        }
    }
    fake_root(const fake_root&) = delete;
    fake_root& operator=(const fake_root&) = delete;
    ~fake_root() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }

    fake_root& put(const std::string& file, const std::string& content) {
        const auto full = std::filesystem::path(path_) / file;
        std::filesystem::create_directories(full.parent_path());
        std::ofstream(full) << content;
        return *this;
    }
    const std::string& path() const noexcept { return path_; }

  private:
    std::string path_;
};

}  // namespace test
