// Hadoop's file system of this machine, without a process for each change of a mode and each look at a link.
//
// Without its native library, which PySpark does not bring, Hadoop has /bin/chmod and /usr/bin/readlink do that:
// a hundred times for each query that a test starts. `java_classes` compiles this.

package org.apache.hadoop.fs.local;

import java.io.IOException;
import java.lang.reflect.Field;
import java.net.URI;
import java.net.URISyntaxException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.DelegateToFileSystem;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsAction;
import org.apache.hadoop.fs.permission.FsPermission;

class RawFilesWithoutProcesses extends RawLocalFileSystem {
    public void setPermission(Path path, FsPermission permission) throws IOException {
        if (permission.getStickyBit()) {
            super.setPermission(path, permission);
            return;
        }
        String letters = permission.getUserAction().SYMBOL
            + permission.getGroupAction().SYMBOL
            + permission.getOtherAction().SYMBOL;
        Files.setPosixFilePermissions(this.pathToFile(path).toPath(), PosixFilePermissions.fromString(letters));
    }

    public FileStatus getFileLinkStatus(Path path) throws IOException {
        if (Files.isSymbolicLink(this.pathToFile(path).toPath())) {
            return super.getFileLinkStatus(path);
        }
        return this.getFileStatus(path);
    }
}

/** For Hadoop's FileSystem. */
class FilesWithoutProcesses extends LocalFileSystem {
    FilesWithoutProcesses() {
        super(new RawFilesWithoutProcesses());
    }
}

/** For Hadoop's FileContext. Spark asks for its class: it has to be a LocalFs, which makes its own raw one. */
class FileContextWithoutProcesses extends LocalFs {
    FileContextWithoutProcesses(URI uri, Configuration configuration)
        throws IOException, URISyntaxException, NoSuchFieldException, IllegalAccessException {
        super(uri, configuration);
        RawLocalFileSystem raw = new RawFilesWithoutProcesses();
        raw.initialize(uri, configuration);
        Field field = DelegateToFileSystem.class.getDeclaredField("fsImpl");
        field.setAccessible(true);
        field.set(this.getMyFs(), raw);
    }
}
